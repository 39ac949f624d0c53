"""Lazy insertion of the MCP bridge as last proxy, by the first session set-up that needs it.

Most sessions declare only MCP servers that the agent accepts as they are. For them the bridge would
cost its imports at startup and a hop for every message. So it is inserted when a set-up request
declares a server of a type that may have to be bridged (`acp`, `http`, `sse`); the bridge itself
decides for each server. If the insertion or the start of the bridge fails, that request is answered
with the error, and the next request that needs the bridge inserts a new one. So it is if the bridge
fails later.

A chain of proxies has a bridge, too, for a parent conductor that has announced no MCP over ACP: its
agent would refuse a session with such a server, or leave out the server without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from conductor.acp import SESSION_SETUP_METHODS
from conductor.errors import StartError, describe
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import Payload, exception_to_error
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.routing.capabilities import has_mcp_over_acp
from conductor.routing.component import Component
from conductor.routing.link import Link
from conductor.routing.stage import ForwardRequest, Stage

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


class BridgeInsertion(Stage):
    """Inserts the bridge before the agent or the parent conductor behind `link`, by the first
    request that needs it.

    `make` returns a new bridge, as a component that is not started; `insert` inserts it.
    """

    __slots__ = ("_bridge", "_insert", "_link", "_make")

    name = "bridge insertion"
    sent: frozenset[str] = SESSION_SETUP_METHODS

    def __init__(
        self,
        link: Link,
        make: Callable[[], PluginComponent],
        insert: Callable[[Component], None],
    ) -> None:
        self._link = link
        self._make = make
        self._insert = insert
        self._bridge: Component | None = None

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self._in_place or not _declares_bridged(params) or self._has_native_parent():
            forward(call, method, params)
            return
        predecessor = self.port.neighbour
        try:
            component = self._inserted()
        except Exception as exc:  # only this request needs the bridge
            error = exc if isinstance(exc, StartError) else StartError(_NAME, describe(exc))
            log.error("MCP bridge insertion failed", error=str(error))
            predecessor.respond(call, None, exception_to_error(error))
        else:
            self._bridge = component
            component.client_port.request(call, method, params)

    @property
    def _in_place(self) -> bool:
        """Whether the bridge is before the agent; after a failure it is bypassed."""
        bridge = self._bridge
        return bridge is not None and self.port.neighbour is bridge.agent_port

    def _has_native_parent(self) -> bool:
        initialize = self._link.session_log.initialize
        if self._link.role != "parent" or initialize is None:
            return False
        return has_mcp_over_acp(initialize.result or b"{}")

    def _inserted(self) -> Component:
        component = self._make()
        initialize = self._link.session_log.initialize
        if initialize is not None:
            bridge = cast("InsertableBridge", component.plugin)
            bridge.set_initialization(initialize.params, initialize.result or b"{}")
        self._insert(component)
        return component


class _ServerType(msgspec.Struct, gc=False):
    type: str | None = None


class _SetupServers(msgspec.Struct, gc=False):
    mcpServers: list[_ServerType] | None = None


_decode_setup: Final = msgspec.json.Decoder(_SetupServers).decode


def _declares_bridged(params: Payload | None) -> bool:
    """Whether a set-up declares a server that may have to be bridged; of params that do not fit the
    schema, only whether they may declare one over ACP."""
    try:
        setup = decode_with_surrogates(b"{}" if params is None else params, _decode_setup)
        servers = setup.mcpServers or []
    except ValueError:
        return b'"acp"' in bytes(params or b"")
    return any(server.type in _BRIDGED_TYPES for server in servers)
