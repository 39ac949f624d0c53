"""The client's turns: cancelled ones are ended if they continue, running ones when the chain ends.

Which component blocks a cancelled turn or request, and what ends it: `supervision.cancel_watch`.
Questions of a cancelled turn (permission requests, elicitations) are answered in the client's
place: many clients forget them, and the agent would wait for their answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from conductor.acp import PROMPT, SESSION_CANCEL, session_id_of
from conductor.acp.turns import Turns
from conductor.chain.client_end import ClientEnd
from conductor.chain.components import ChainComponents
from conductor.chain.startup_gate import StartupGate
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.log import get_logger
from conductor.routing.component import Cancelled
from conductor.routing.link import Link
from conductor.routing.stage import (
    ForwardCancel,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)
from conductor.supervision.cancel_watch import CancelWatch
from conductor.supervision.deadlines import Deadlines
from conductor.supervision.turn_observer import TurnObserver

__all__ = ["ClientTurns"]

_ANSWER_SECONDS: Final = 1.0
"""For the client to answer the open questions of a turn that it cancels."""
_CANCELLED: Final = {
    "session/request_permission": b'{"outcome":{"outcome":"cancelled"}}',
    "elicitation/create": b'{"action":"cancel"}',
}
"""The raw answer to each question of an agent that says that the turn was cancelled."""

log: Final = get_logger(component="conductor")


class ClientTurns:
    """The turns of one client, for the components of its chain and its end of it."""

    def __init__(
        self, client_end: ClientEnd, components: ChainComponents, startup_gate: StartupGate
    ) -> None:
        client = client_end.link
        self.is_elsewhere: Callable[[Cancelled], bool] = lambda what: False
        """Whether a further chain of the client has the turn or request, and ends it."""
        self.observer: TurnObserver = TurnObserver(client, lambda: startup_gate.version == 2)
        self.watch: CancelWatch = CancelWatch(components, self.observer, components.running)
        self.watch.ends = lambda what: startup_gate.state == "open" and not self.is_elsewhere(what)
        self.observer.cancels = components.cancels = self.watch
        client_end.turns = self.observer.turns
        self._questions = _Questions(
            client, self.observer.turns, lambda session: self.is_elsewhere(session)
        )
        self._clock: trio.abc.Clock | None = None
        client.plain.insert(self._questions)

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        self._clock = trio.lowlevel.current_clock()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch.run)
            nursery.start_soon(self._questions.run)

    def turns(self) -> list[tuple[str, float]]:
        """Session of each running turn, and seconds since it began. May be called by any thread."""
        now = 0.0 if self._clock is None else self._clock.current_time()
        sessions = list(self.observer.turns.sessions.items())
        began = [(name, each.began_at) for name, each in sessions]
        return [(name, now - at) for name, at in began if at is not None]

    def running(self) -> set[str]:
        """Sessions with a running turn."""
        return {name for name, each in self.observer.turns.sessions.items() if each.is_running}

    def cancel_running(self) -> None:
        """Cancel the running turns in the client's place, but for those that it has cancelled."""
        for session in self.running():
            if not self.observer.turns.is_cancelled(session):
                params = msgspec.json.encode({"sessionId": session})
                self.observer.link.on_notification(SESSION_CANCEL, params)


class _Questions(Stage):
    """Answers questions of a turn that the client cancels: the open ones after a second, later ones
    at once, which the client does not get. `turns` knows of each cancellation before this does;
    `is_elsewhere` tells whether a session is one of a further chain."""

    __slots__ = ("_cancelled", "_client", "_due", "_is_elsewhere", "_open", "_turns")

    name = "questions"
    sent: frozenset[str] = frozenset(_CANCELLED)
    received: frozenset[str] = frozenset({PROMPT, SESSION_CANCEL})

    def __init__(
        self, client: Link, turns: Turns[InFlightRequest], is_elsewhere: Callable[[str], bool]
    ) -> None:
        self._client = client
        self._turns = turns
        self._is_elsewhere = is_elsewhere
        self._open: dict[InFlightRequest, str] = {}
        self._cancelled: set[str] = set()
        """Sessions in which no prompt was answered since a turn was cancelled."""
        self._due: Deadlines[InFlightRequest] = Deadlines(self._answer)

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        await self._due.run()

    def takes(self, kind: StageMethod, method: str) -> bool:
        return super().takes(kind, method) and (kind != "send_response" or bool(self._cancelled))

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        session = session_id_of(params)
        turns = self._turns.sessions.get(session or "")
        if session in self._cancelled and turns is not None and turns.is_all_cancelled:
            log.info("question answered in the client's place", method=method, session=session)
            self.port.answer(self, call, _CANCELLED[method], None)
            return
        if session is not None:
            self._open[call] = session
        forward(call, method, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._open.pop(call, None)
        self._due.pop(call, None)
        forward(call, result, error)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._cancelled.discard(call.session or "")
        if not self._cancelled:
            self.port.changed()
        forward(call, result, error)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if (session := session_id_of(params)) is not None:
            self._cancel(session)
        forward(method, params)

    def receive_cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        turns = self._turns.sessions.get(call.session or "")
        if turns is not None and [each.key for each in turns.unanswered()] == [call]:
            self._cancel(call.session or "")
        forward(call)

    def _cancel(self, session: str) -> None:
        if self._is_elsewhere(session):
            return
        was_empty = not self._cancelled
        self._cancelled = {each for each in self._cancelled if self._turns.is_cancelled(each)}
        turns = self._turns.sessions.get(session)
        if self._turns.is_cancelled(session):
            self._cancelled.add(session)
            if was_empty:
                self.port.changed()
        elif self._turns.version == 2 and (turns is None or not turns.is_underway):
            return  # they belong to work in the background, which is not cancelled
        deadline = trio.current_time() + _ANSWER_SECONDS
        for call, asked_in in self._open.items():
            if asked_in == session and call not in self._due:
                self._due[call] = deadline

    def _answer(self, call: InFlightRequest) -> None:
        log.info(
            "question answered in the client's place", method=call.method, session=self._open[call]
        )
        self._client.plain.cancel(call)  # it may still show the question
        self._client.answer_in_place(call, _CANCELLED[call.method], None)
