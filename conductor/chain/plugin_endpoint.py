"""Endpoint for a plugin in this process that is restarted when it fails (`on_failure: restart`).

As with `isolate: true`, the plugin runs in a chain of its own behind a link, but in this process.
Every start makes a new instance of the class; instances share the state of its module.
"""

from __future__ import annotations

from typing import Literal

from conductor.chainfile.model import ComponentSpec
from conductor.errors import ComponentExited, StartError
from conductor.limits import Limits
from conductor.plugins.handler_reporter import ReportingRecorder
from conductor.plugins.isolation import plugin_info
from conductor.plugins.loading import load_plugin
from conductor.plugins.plugin_component import PluginComponent
from conductor.plugins.plugin_runtime import AgentChainOpener
from conductor.proxy.base import Agent
from conductor.remote.transport import RemoteTransport
from conductor.tracing.recorder import TraceRecorder, current_recorder

__all__ = ["plugin_endpoint"]


def _reporting(outer: TraceRecorder) -> ReportingRecorder:
    return ReportingRecorder(outer.chain, outer=outer, reports_all=outer.keeps_payloads)


def plugin_endpoint(
    spec: ComponentSpec, max_message_bytes: int, agent_chain_opener: AgentChainOpener
) -> RemoteTransport:
    """A transport to a new instance of the plugin, not running yet.

    The transport ends with the failure reason if the plugin cannot be loaded or fails.
    """

    location = None if spec.location is None else str(spec.location)

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

        role: Literal["agent", "proxy"] = "agent" if isinstance(plugin, Agent) else "proxy"
        component = PluginComponent(
            spec.name,
            plugin,
            role,
            location,
            spec.start_timeout,
            spec.stop_timeout,
            required=spec.required,
            lost=lost,
            agent_chain_opener=agent_chain_opener,
        )
        runtime = component.runtime
        runtime.start_soon(runtime.client.notify, *plugin_info(plugin))
        outer = current_recorder.get()
        recorder = None if outer is None else _reporting(outer)
        if recorder is not None:
            runtime.start_soon(recorder.send_reports, runtime.client.notify)
        chain = Chain(
            endpoint.network,
            lambda: [component],
            mode=role,
            limits=Limits(max_message_bytes=max_message_bytes),
            stop_timeout=spec.stop_timeout,
            enforces_cancel_timeout=False,
            recorder=recorder,
        )
        endpoint.reached = True
        await chain.run()

    return RemoteTransport("this process", max_message_bytes, carry)
