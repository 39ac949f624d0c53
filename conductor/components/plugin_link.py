"""A plugin at the far end of a wire, in this process: it can be started again when it fails.

It is what `isolate: true` makes of it, a chain with nothing else in it, but for the process. Every
start makes a new instance of the class; what its module holds, the instances share.
"""

from __future__ import annotations

from typing import Literal

from conductor.chainfile.model import Component as Spec
from conductor.components.loading import make_plugin
from conductor.components.plugin import PluginComponent
from conductor.errors import ComponentExited, StartError
from conductor.limits import Limits
from conductor.proxy.base import Agent
from conductor.remote.link import RemoteLink

__all__ = ["plugin_link"]


def plugin_link(spec: Spec, max_message_bytes: int) -> RemoteLink:
    """A new instance, not running yet."""

    async def carry(link: RemoteLink) -> None:
        from conductor.chain import Chain

        try:
            plugin = make_plugin(spec)
        except StartError as exc:
            link.end(f"failed: {exc.reason}")
            return

        def lost(error: ComponentExited) -> None:
            link.network.close()
            link.end(error.status)

        place = None if spec.place is None else str(spec.place)
        role: Literal["agent", "proxy"] = "agent" if isinstance(plugin, Agent) else "proxy"
        seconds = (spec.start_timeout, spec.stop_timeout)
        chain = Chain(
            link.network,
            lambda: [PluginComponent(spec.name, plugin, role, place, *seconds, lost=lost)],
            mode=role,
            limits=Limits(max_message_bytes=max_message_bytes),
            stop_timeout=spec.stop_timeout,
            bridged=False,
            watches_turns=False,
        )
        link.reached = True
        await chain.run()

    return RemoteLink("this process", max_message_bytes, carry)
