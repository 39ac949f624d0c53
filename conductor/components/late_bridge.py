"""The MCP bridge takes its place before the agent when the first session needs it, not before.

Most sessions declare no MCP server that an agent does not take as it is. For them the bridge would
cost its imports at the start, and a hop for every message; so it is left out of the chain until a
set-up request comes by with a server of a type that may have to be bridged. If it cannot be put
there, or does not start, that request is answered with the error, and the next one tries again; so
it does when the bridge has failed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
import msgspec

from conductor.components.base import Component
from conductor.components.command import CommandComponent
from conductor.connection.calls import Call
from conductor.errors import StartError, describe
from conductor.frames import UNUSUAL
from conductor.limits import Limits
from conductor.log import get_logger
from conductor.messages import Payload, error_of
from conductor.routing.recollection import SET_UPS

__all__ = ["Bridge", "LateBridge"]

_NAME: Final = "mcp-bridge"
_BRIDGED: Final = frozenset({"acp", "http", "sse"})

log = get_logger(component=_NAME)


class Bridge(Protocol):
    """What the bridge, which is a plugin, can be told."""

    limits: Limits

    def learn(self, result: bytes) -> None:
        """What the agent answered to `initialize`, for a bridge that was not there to see it."""


@attrs.define(eq=False, repr=False)
class LateBridge:
    """Stands at the agent's client side until it has put the bridge there.

    `make` makes the component, and what to tell its plugin through.
    """

    agent: CommandComponent
    make: Callable[[], tuple[Component, Bridge]]
    _bridge: Component | None = attrs.field(default=None, init=False)

    def takes(self, call: Call, method: str, params: Payload | None) -> bool:
        """Whether the bridge was put in place for this request, and has it now."""
        if self._in_place or method not in SET_UPS or not _declares_bridged(params):
            return False
        predecessor = self.agent.client_side.neighbour
        try:
            component = self._insert()
        except Exception as exc:  # whatever it is, only this request needs the bridge
            error = exc if isinstance(exc, StartError) else StartError(_NAME, describe(exc))
            log.error("the MCP bridge could not be put into the chain", error=str(error))
            predecessor.respond(call, None, error_of(error))
        else:
            self._bridge = component
            component.client_side.request(call, method, params)
        return True

    @property
    def _in_place(self) -> bool:
        bridge = self._bridge
        return bridge is not None and self.agent.client_side.neighbour is bridge.agent_side

    def _insert(self) -> Component:
        component, bridge = self.make()
        initialize = self.agent.wire.recollection.initialize
        if initialize is not None:
            bridge.learn(initialize.result or b"{}")
        self.agent.host.insert(component, before=self.agent)
        return component


class _Server(msgspec.Struct, gc=False):
    type: str | None = None


class _SetUp(msgspec.Struct, gc=False):
    mcpServers: list[_Server] | None = None


_decode: Final = msgspec.json.Decoder(_SetUp).decode


def _declares_bridged(params: Payload | None) -> bool:
    try:
        servers = _decode(params if params is not None else b"{}").mcpServers or []
    except UNUSUAL:
        return b'"acp"' in bytes(params or b"")
    return any(server.type in _BRIDGED for server in servers)
