"""End cancelled turns and requests of the client that no component has ended.

A component behind a link has its own monitor (`supervision.turn_enforcement`); here the client's
link is watched, for a turn that hangs in a plugin before the first of them. Which component blocks
the turn is decided by the chain's `CancelArbiter`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import trio

from conductor.chain.startup_gate import StartupGate
from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import get_logger
from conductor.routing.component import Component, ComponentHost
from conductor.routing.link import Link
from conductor.supervision.cancel_arbiter import (
    CancelArbiter,
    cancelled_answer,
    cancelled_error,
    idle_update,
    report_ended_turn,
)
from conductor.supervision.cancel_monitor import CancelMonitor
from conductor.supervision.cancel_timeouts import CancelOverdue, TurnOverdue

__all__ = ["CancelledTurns"]

log: Final = get_logger(component="conductor")


class CancelledTurns:
    """Cancelled turns of one chain. `components` is the chain's list, which changes."""

    def __init__(
        self,
        host: ComponentHost,
        client: Link,
        components: list[Component],
        startup_gate: StartupGate,
    ) -> None:
        self._host = host
        self._client_port = client.plain
        self._components = components
        self._startup_gate = startup_gate
        self._arbiter = CancelArbiter()
        self._monitor = CancelMonitor(
            CANCEL_TIMEOUT, lambda: startup_gate.version == 2, self._on_overdue
        )
        self.is_elsewhere: Callable[[CancelOverdue], bool] = lambda overdue: False
        """Whether a further chain of the client has the turn or request, and ends it."""
        client.incoming_observers += (self._monitor,)

    def break_cycles(self) -> None:
        """Break reference cycles, after the end of the chain."""
        del self._monitor, self.is_elsewhere

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._monitor.run()

    def turns(self) -> list[tuple[str | None, float]]:
        """Session of each running turn, and seconds since it began."""
        return self._monitor.timeouts.turns()

    def set_timeout(self, seconds: float) -> None:
        """Set the agent's `cancel_timeout`."""
        self._arbiter.timeout = self._monitor.timeouts.timeout = seconds

    def blocking_component(
        self, watcher: Component | None, cancelled: tuple[Literal["turn", "request"], str]
    ) -> tuple[Component | None, bool]:
        """See `ComponentHost.blocking_component`; `watcher` is None for the client's link."""
        return self._arbiter.find(self._components, watcher, cancelled, trio.current_time())

    def _on_overdue(self, overdue: CancelOverdue) -> None:
        if self._startup_gate.state != "open" or self.is_elsewhere(overdue):
            return
        if isinstance(overdue, TurnOverdue):
            self._end_turn(overdue)
            return
        call = overdue.call
        blocking, acts = self.blocking_component(None, ("request", call.method))
        if acts:
            name = self._blocking_name(blocking)
            log.warning(
                "request not answered after $/cancel_request: answered in its place",
                method=call.method,
                blocked_by=name,
            )
            self._client_port.respond(call, None, cancelled_error(call.method, name))

    def _blocking_name(self, blocking: Component | None) -> str:
        found = blocking or self._arbiter.suspect(self._components)
        return "the chain" if found is None else found.name

    def _end_turn(self, overdue: TurnOverdue) -> None:
        session, seconds = overdue.session, self._monitor.timeouts.timeout
        blocking, acts = self.blocking_component(None, ("turn", session))
        if not acts:
            return
        name = "the chain" if blocking is None else blocking.name
        log.warning(
            "cancelled turn still running", session=session, seconds=seconds, blocked_by=name
        )
        report_ended_turn(self._host, session, name, seconds)
        version_2 = self._startup_gate.version == 2
        if blocking is None or not blocking.end_turn(session, version_2=version_2):
            for call in overdue.prompts:
                answer = cancelled_answer(call.method, name, version_2=version_2)
                self._client_port.respond(call, *answer)
        if overdue.running:
            port = self._client_port if blocking is None else blocking.client_port.neighbour
            port.notify(SESSION_UPDATE, idle_update(session, "cancelled"))
