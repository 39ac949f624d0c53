"""End cancelled turns and requests of the client that no component has ended; cancel the running
turns when the chain ends.

A component behind a link has its own monitor (`supervision.turn_enforcement`); here the client's
link is watched, for a turn that hangs in a plugin before the first of them. Which component blocks
the turn is decided by the chain's `CancelArbiter`.

Questions of a cancelled turn (permission requests, elicitations) are answered in the client's
place: many clients forget them, and the agent would wait for their answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec
import trio

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.acp.turns import Turns
from conductor.chain.startup_gate import StartupGate
from conductor.chainfile.model import CANCEL_TIMEOUT
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE
from conductor.log import get_logger
from conductor.routing.component import Component, ComponentHost
from conductor.routing.link import Link
from conductor.routing.observers import LinkObserver
from conductor.routing.stage import ForwardRequest, Stage
from conductor.supervision.cancel_arbiter import (
    CancelArbiter,
    cancelled_answer,
    cancelled_error,
    idle_update,
    report_ended_turn,
)
from conductor.supervision.cancel_monitor import CancelMonitor
from conductor.supervision.cancel_timeouts import CancelOverdue, TurnOverdue
from conductor.supervision.deadline_timer import NEVER, DeadlineTimer

__all__ = ["CancelledTurns", "turns_of_parent"]

_ANSWER_SECONDS: Final = 1.0
"""For the client to answer the open questions of a turn that it cancels."""
_CANCELLED: Final = {
    "session/request_permission": b'{"outcome":{"outcome":"cancelled"}}',
    "elicitation/create": b'{"action":"cancel"}',
}
"""The raw answer to each question of an agent that says that the turn was cancelled."""

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
        self._client = client
        self._client_port = client.plain
        self._components = components
        self._startup_gate = startup_gate
        self._arbiter = CancelArbiter()
        self.monitor: CancelMonitor = CancelMonitor(
            CANCEL_TIMEOUT, lambda: startup_gate.version == 2, self._on_overdue
        )
        self.is_elsewhere: Callable[[CancelOverdue], bool] = lambda overdue: False
        """Whether a further chain of the client has the turn or request, and ends it."""
        self._questions = _Questions(
            client,
            self.monitor.turns,
            lambda session: self.is_elsewhere(TurnOverdue(session, (), running=False)),
        )
        client.observe_received(self.monitor)
        client.observe_received(self._questions)
        client.observe_sent(self._questions)
        client.plain.insert(_LateQuestions(self._questions.late_answer))

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.monitor.run)
            nursery.start_soon(self._questions.run)

    def turns(self) -> list[tuple[str, float]]:
        """Session of each running turn, and seconds since it began."""
        return self.monitor.running_since()

    def running(self) -> set[str]:
        """Sessions with a running turn."""
        return {name for name, each in self.monitor.turns.sessions.items() if each.is_running}

    def cancel_running(self) -> None:
        """Cancel the running turns in the client's place, but for those that it has cancelled."""
        for session in self.running():
            if not self.monitor.turns.is_cancelled(session):
                params = msgspec.json.encode({"sessionId": session})
                self._client.on_notification(SESSION_CANCEL, params)

    def set_timeout(self, seconds: float) -> None:
        """Set the agent's `cancel_timeout`."""
        self._arbiter.timeout = self.monitor.timeouts.timeout = seconds

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
        session, seconds = overdue.session, self.monitor.timeouts.timeout
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


def turns_of_parent(client: Link, startup_gate: StartupGate) -> CancelMonitor:
    """The turns of a parent conductor, which ends what hangs: nothing is overdue here."""
    monitor = CancelMonitor(NEVER, lambda: startup_gate.version == 2, lambda overdue: None)
    client.observe_received(monitor)
    return monitor


class _Questions(LinkObserver):
    """Questions that the client has not answered; those of a turn that it cancels are answered in
    its place. `turns` knows of each message before this does; `is_elsewhere` tells whether a
    session is one of a further chain."""

    def __init__(
        self,
        client: Link,
        turns: Turns[InFlightRequest],
        is_elsewhere: Callable[[str], bool],
    ) -> None:
        self.client = client
        self.turns = turns
        self.is_elsewhere = is_elsewhere
        self._open: dict[InFlightRequest, str] = {}
        self._due: dict[InFlightRequest, float] = {}
        self._cancelled: set[str] = set()
        """Sessions in which no prompt was answered since a turn was cancelled."""
        self._timer: DeadlineTimer[InFlightRequest] = DeadlineTimer(self, self._answer)

    async def run(self) -> None:
        await self._timer.run()

    def late_answer(self, method: str, params: Payload | None) -> bytes | None:
        """The raw answer to a question that is asked after its turn was cancelled; the client does
        not get it."""
        if not self._cancelled:
            return None
        session = session_id_of(params)
        turns = self.turns.sessions.get(session or "")
        if session not in self._cancelled or turns is None or not turns.is_all_cancelled:
            return None
        log.info("question answered in the client's place", method=method, session=session)
        return _CANCELLED[method]

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method in _CANCELLED and (session := session_id_of(params)) is not None:
            self._open[call] = session

    def on_response(self, call: InFlightRequest) -> None:
        if self._open.pop(call, None) is not None:
            self._due.pop(call, None)
        elif call.method == PROMPT and call.session is not None:
            self._cancelled.discard(call.session)

    def on_session_cancel(self, params: Payload | None) -> None:
        if (session := session_id_of(params)) is not None:
            self._cancel(session)

    def on_cancel_request(self, call: InFlightRequest) -> None:
        turns = self.turns.sessions.get(call.session or "")
        if turns is not None and [each.key for each in turns.unanswered()] == [call]:
            self._cancel(call.session or "")

    def _cancel(self, session: str) -> None:
        if self.is_elsewhere(session):
            return
        self._cancelled = {each for each in self._cancelled if self.turns.is_cancelled(each)}
        turns = self.turns.sessions.get(session)
        if self.turns.is_cancelled(session):
            self._cancelled.add(session)
        elif self.turns.version == 2 and (turns is None or not turns.is_underway):
            return  # they belong to work in the background, which is not cancelled
        deadline = trio.current_time() + _ANSWER_SECONDS
        for call, asked_in in self._open.items():
            if asked_in == session:
                self._timer.reschedule(self._due.setdefault(call, deadline))

    def _answer(self, call: InFlightRequest) -> None:
        log.info(
            "question answered in the client's place", method=call.method, session=self._open[call]
        )
        self.client.plain.cancel(call)  # it may still show the question
        self.client.answer_in_place(call, _CANCELLED[call.method], None)

    # -- Deadlines ---------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        return min(self._due.values(), default=NEVER)

    def overdue(self, now: float) -> list[InFlightRequest]:
        overdue = [call for call, deadline in self._due.items() if deadline <= now]
        for call in overdue:
            del self._due[call]
        return overdue

    def forget(self) -> None:
        self._due.clear()


class _LateQuestions(Stage):
    """Answers questions for which `answer` has a raw result."""

    __slots__ = ("_answer",)

    name = "late questions"
    sent: frozenset[str] = frozenset(_CANCELLED)

    def __init__(self, answer: Callable[[str, Payload | None], bytes | None]) -> None:
        self._answer = answer

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if (result := self._answer(method, params)) is None:
            forward(call, method, params)
        else:
            self.port.answer(self, call, result, None)
