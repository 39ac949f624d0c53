"""Endpoint for a plugin in this process that is restarted when it fails (`on_failure: restart`).

As with `isolate: true`, the plugin runs in a chain of its own behind a link, but in this process.
Every start makes a new instance of the class; instances share the state of its module.
"""

from __future__ import annotations

from typing import Literal

from conductor.chainfile.model import ComponentSpec
from conductor.errors import ComponentExited, StartError
from conductor.limits import Limits
from conductor.plugins.loading import load_plugin
from conductor.plugins.plugin_component import AgentChainOpener, PluginComponent
from conductor.proxy.base import Agent
from conductor.remote.transport import RemoteTransport

__all__ = ["plugin_endpoint"]


def plugin_endpoint(
    spec: ComponentSpec, max_message_bytes: int, agent_chain_opener: AgentChainOpener
) -> RemoteTransport:
    """A transport to a new instance of the plugin, not running yet.

    The transport ends with the failure reason if the plugin cannot be loaded or fails.
    """

    async def carry(endpoint: RemoteTransport) -> None:
        from conductor.chain.chain import Chain

        try:
            plugin = load_plugin(spec)
        except StartError as exc:
            endpoint.end(f"failed: {exc.reason}")
            return

        def lost(error: ComponentExited) -> None:
            endpoint.network.close()
            endpoint.end(error.status)

        location = None if spec.location is None else str(spec.location)
        role: Literal["agent", "proxy"] = "agent" if isinstance(plugin, Agent) else "proxy"
        seconds = (spec.start_timeout, spec.stop_timeout)
        chain = Chain(
            endpoint.network,
            lambda: [
                PluginComponent(
                    spec.name,
                    plugin,
                    role,
                    location,
                    *seconds,
                    lost=lost,
                    agent_chain_opener=agent_chain_opener,
                )
            ],
            mode=role,
            limits=Limits(max_message_bytes=max_message_bytes),
            stop_timeout=spec.stop_timeout,
            bridged=False,
            enforces_cancel_timeout=False,
        )
        endpoint.reached = True
        await chain.run()

    return RemoteTransport("this process", max_message_bytes, carry)
