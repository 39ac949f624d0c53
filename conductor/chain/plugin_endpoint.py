"""Endpoint for a plugin in this process that is restarted when it fails (`on_failure: restart`).

As with `isolate: true`, the plugin runs in a chain of its own behind a link, but in this process.
Every start makes a new instance of the class; instances share the state of its module.
"""

from __future__ import annotations

from collections.abc import Callable

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.errors import ComponentExited, StartError
from conductor.limits import Limits
from conductor.plugins.handler_reporter import ReportingRecorder
from conductor.plugins.isolation import plugin_info
from conductor.plugins.plugin_component import PluginComponent
from conductor.remote.transport import RemoteTransport
from conductor.tracing.recorder import current_recorder

__all__ = ["plugin_endpoint"]


def plugin_endpoint(make: Callable[[], PluginComponent], max_message_bytes: int) -> RemoteTransport:
    """A transport to the plugin that `make` returns, with a new instance, when it is run.

    The transport ends with the failure reason if the plugin cannot be made or fails.
    """

    async def carry(endpoint: RemoteTransport) -> None:
        try:
            component = make()
        except StartError as exc:
            endpoint.end(f"failed: {exc.reason}")
            return

        def lost(error: ComponentExited) -> None:
            endpoint.network.close()
            endpoint.end(error.status)

        component.lost = lost
        runtime = component.runtime
        runtime.start_soon(runtime.client.notify, *plugin_info(component.plugin))
        recorder = None
        if (outer := current_recorder.get()) is not None:
            all = outer.keeps_payloads
            recorder = ReportingRecorder(outer.chain, outer=outer, reports_all=all)
            runtime.start_soon(recorder.send_reports, runtime.client.notify)
        limits = Limits(max_message_bytes=max_message_bytes)
        seconds = component.stop_timeout
        spec = ChainSpec(lambda: [component], component.role, limits, seconds, is_supervised=True)
        endpoint.reached = True
        await Chain(endpoint.network, spec, recorder=recorder).run()

    return RemoteTransport("this process", max_message_bytes, carry)
