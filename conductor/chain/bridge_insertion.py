"""Lazy insertion of the MCP bridge before the agent, by the first session set-up that needs it.

Most sessions declare only MCP servers that the agent accepts as they are. For them the bridge would
cost its imports at startup and a hop for every message. So it is inserted when a set-up request
declares a server of a type that may have to be bridged (`acp`, `http`, `sse`); the bridge itself
decides for each server. If the insertion or the start of the bridge fails, that request is answered
with the error, and the next request that needs the bridge inserts a new one. So it is if the bridge
fails later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from conductor.acp import SESSION_SETUP_METHODS
from conductor.errors import StartError, describe
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.routing.component import Component
from conductor.supervision.supervisor import SupervisedComponent

if TYPE_CHECKING:
    from conductor.plugins.plugin_component import PluginComponent

__all__ = ["BridgeInsertion", "InsertableBridge"]

_NAME: Final = "mcp-bridge"
_BRIDGED_TYPES: Final = frozenset({"acp", "http", "sse"})

log: Final = get_logger(component=_NAME)


class InsertableBridge(Protocol):
    """Interface of the bridge plugin toward its insertion."""

    limits: Limits

    def set_initialization(self, params: bytes | None, result: bytes) -> None:
        """The raw params of `initialize` and the agent's raw result, which the inserted bridge has
        not seen."""


class BridgeInsertion(msgspec.Struct, eq=False):
    """Inserts the bridge before one agent; `intercept` is the `Link.intercept_setup` of the agent.

    `make` returns a new bridge, as a component that is not started.
    """

    agent: SupervisedComponent
    make: Callable[[], PluginComponent]
    _bridge: Component | None = None

    def intercept(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Insert the bridge if this request needs it and it is not in place.

        True if the request was passed to the bridge, or answered with an error; false if it is to
        be sent to the agent.
        """
        if self._in_place or method not in SESSION_SETUP_METHODS or not _declares_bridged(params):
            return False
        predecessor = self.agent.client_port.neighbour
        try:
            component = self._insert()
        except Exception as exc:  # only this request needs the bridge
            error = exc if isinstance(exc, StartError) else StartError(_NAME, describe(exc))
            log.error("MCP bridge insertion failed", error=str(error))
            predecessor.respond(call, None, exception_to_error(error))
        else:
            self._bridge = component
            component.client_port.request(call, method, params)
        return True

    @property
    def _in_place(self) -> bool:
        """Whether the bridge is before the agent; after a failure it is bypassed."""
        bridge = self._bridge
        return bridge is not None and self.agent.client_port.neighbour is bridge.agent_port

    def _insert(self) -> Component:
        component = self.make()
        initialize = self.agent.link.session_log.initialize
        if initialize is not None:
            bridge = cast("InsertableBridge", component.plugin)
            bridge.set_initialization(initialize.params, initialize.result or b"{}")
        self.agent.host.insert(component, before=self.agent)
        return component


class _ServerType(msgspec.Struct, gc=False):
    type: str | None = None


class _SetupServers(msgspec.Struct, gc=False):
    mcpServers: list[_ServerType] | None = None


def _declares_bridged(params: Payload | None) -> bool:
    """Whether a set-up declares a server that may have to be bridged; of params that do not fit the
    schema, only whether they may declare one over ACP."""
    try:
        setup = msgspec.json.decode(b"{}" if params is None else params, type=_SetupServers)
        servers = setup.mcpServers or []
    except DECODE_ERRORS:
        return b'"acp"' in bytes(params or b"")
    return any(server.type in _BRIDGED_TYPES for server in servers)
