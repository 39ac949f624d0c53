"""Name the component that a session set-up waits for, when it takes longer than `SLOW` seconds.

Agents start MCP servers and read histories meanwhile, some for minutes. A proxy that waits for its
successor's answer is not named: the successor is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec
import trio

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import Payload
from conductor.routing.link import Link
from conductor.routing.observers import LinkObserver
from conductor.supervision.deadline_timer import NEVER, DeadlineTimer

__all__ = ["SLOW", "SlowSetup", "SlowSetupMonitor"]

SLOW: Final = 2.0
"""Seconds after which a start or a session set-up is slow."""


class SlowSetup(msgspec.Struct, frozen=True):
    """A session set-up that a component has not answered for `SLOW` seconds."""

    method: str
    session: str | None
    """The session to load, resume or fork; None for a new one."""
    servers: list[str]
    """Names of the MCP servers of the request, which the component may be starting."""


class _OpenSetups(msgspec.Struct, eq=False):
    """The open session set-ups of one component, with their deadlines."""

    requests: dict[InFlightRequest, tuple[float, bytes]] = msgspec.field(default_factory=dict)
    """Deadline and raw params of those that are not reported."""
    at_successor: set[InFlightRequest] = msgspec.field(default_factory=set)

    def next_deadline(self) -> float:
        return min((deadline for deadline, _ in self.requests.values()), default=NEVER)

    def overdue(self, now: float) -> list[SlowSetup]:
        late = [call for call, (deadline, _) in self.requests.items() if deadline <= now]
        return [_slow_setup(call.method, self.requests.pop(call)[1]) for call in late]

    def forget(self) -> None:
        self.requests.clear()
        self.at_successor.clear()

    def postpone(self, deadline: float) -> None:
        self.requests = {call: (deadline, raw) for call, (_, raw) in self.requests.items()}


class SlowSetupMonitor(LinkObserver):
    """Monitor of one component; `on_slow` is called once with each slow set-up."""

    requests: ClassVar[frozenset[str]] = SESSION_SETUP_METHODS

    def __init__(self, on_slow: Callable[[SlowSetup], None]) -> None:
        self._setups = _OpenSetups()
        self._timer = DeadlineTimer(self._setups, on_slow)

    def observe(self, link: Link) -> None:
        """Observe the requests of both directions."""
        link.observe_sent(self)
        if link.enveloped is not None:
            link.observe_received(_Forwarded(self._setups, self._timer))

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._timer.run()

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        deadline = trio.current_time() + SLOW
        self._setups.requests[call] = (deadline, bytes(params or b"{}"))
        self._timer.reschedule(deadline)

    def on_response(self, call: InFlightRequest) -> None:
        self._setups.requests.pop(call, None)


class _Forwarded(LinkObserver, msgspec.Struct, eq=False):
    """The session set-ups that a proxy has sent to its successor."""

    requests: ClassVar[frozenset[str]] = SESSION_SETUP_METHODS

    setups: _OpenSetups
    timer: DeadlineTimer[SlowSetup]

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.setups.at_successor.add(call)
        self.setups.postpone(NEVER)

    def on_response(self, call: InFlightRequest) -> None:
        if call in self.setups.at_successor:
            self.setups.at_successor.discard(call)
            deadline = trio.current_time() + SLOW
            self.setups.postpone(deadline)
            self.timer.reschedule(deadline)


class _ServerName(msgspec.Struct):
    name: str = ""


class _Setup(msgspec.Struct):
    mcpServers: list[_ServerName] | None = None


_decode_setup: Final = msgspec.json.Decoder(_Setup).decode


def _slow_setup(method: str, params: bytes) -> SlowSetup:
    try:
        setup = decode_with_surrogates(params, _decode_setup)
        servers = [server.name for server in setup.mcpServers or ()]
    except ValueError:
        servers = []
    return SlowSetup(method, session_id_of(params), servers)
