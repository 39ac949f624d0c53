"""Name the component that a session set-up waits for, when it takes longer than `SLOW` seconds.

Agents start MCP servers and read histories meanwhile, some for minutes. A proxy that waits for its
successor's answer is not named: the successor is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from conductor.acp import SESSION_SETUP_METHODS, session_id_of
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decoded_members
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.routing.link import Link
from conductor.routing.stage import ForwardRequest, ForwardResponse, SeenRequests, Stage
from conductor.supervision.deadlines import NEVER, Deadlines

__all__ = ["SLOW", "SlowSetupMonitor"]

SLOW: Final = 2.0
"""Seconds after which a start or a session set-up is slow."""


class SlowSetupMonitor(Stage):
    """Monitor of one component.

    `on_slow` is called once with each slow set-up: its method, the session to load, resume or fork
    (`None` for a new one), and the names of its MCP servers, which the component may be starting.
    """

    name = "slow set-ups"
    sent: frozenset[str] = SESSION_SETUP_METHODS

    def __init__(self, on_slow: Callable[[str, str | None, list[str]], None]) -> None:
        self._on_slow = on_slow
        self._open: dict[InFlightRequest, bytes] = {}
        """Raw params of those that are not reported."""
        self._due: Deadlines[InFlightRequest] = Deadlines(self._report)

    def insert(self, link: Link) -> None:
        """Observe the requests of both directions."""
        link.plain.insert(self)
        if link.enveloped is not None:
            link.enveloped.insert(
                SeenRequests(self.name, SESSION_SETUP_METHODS, self._forwarded, self._answered)
            )

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        self._open.clear()
        await self._due.run()

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._open[call] = bytes(params or b"{}")
        self._due[call] = trio.current_time() + SLOW
        forward(call, method, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        if self._open.pop(call, None) is not None:
            self._due.pop(call, None)
        forward(call, result, error)

    def _forwarded(self, call: InFlightRequest, params: Payload | None) -> None:
        """A proxy sends a set-up to its successor."""
        self._postpone(NEVER)

    def _answered(self, call: InFlightRequest) -> None:
        """Its successor has answered one."""
        self._postpone(trio.current_time() + SLOW)

    def _postpone(self, deadline: float) -> None:
        """Set the deadline of all open set-ups."""
        for call in self._open:
            self._due[call] = deadline

    def _report(self, call: InFlightRequest) -> None:
        params = self._open.pop(call)
        servers = decoded_members(params).get("mcpServers")
        named = [each for each in servers if isinstance(each, dict)] if servers else []
        names = [str(each.get("name", "")) for each in named]
        self._on_slow(call.method, session_id_of(params), names)
