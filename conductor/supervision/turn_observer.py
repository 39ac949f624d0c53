"""Feed the turns of a link (`acp.turns`) with what passes it, and report cancellations.

Costs nothing per update in version 1. In version 2 the end of a turn is an update: every update is
searched for one word, and only those that contain it are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
import trio

from conductor.acp import (
    PROMPT,
    SESSION_CANCEL,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    session_id_of,
)
from conductor.acp.turns import Ended, Turns
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.component import CancelReports
from conductor.routing.envelope import HANDSHAKE
from conductor.routing.link import CLIENT_ROLES, Link
from conductor.routing.stage import (
    EVERY,
    ForwardBatch,
    ForwardCancel,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)

__all__ = ["TurnObserver"]

_STATE: Final = b"state_update"
_RESUME: Final = "session/resume"
_OF_SESSIONS: Final = SESSION_SETUP_METHODS | SESSION_END_METHODS
_REQUESTS: Final = _OF_SESSIONS | {PROMPT}
_TO_COMPONENT: Final[Mapping[StageMethod, str]] = {
    "send_request": "request",
    "receive_response": "response",
    "send_cancel": "cancel",
    "send_notification": "session_cancel",
    "receive_notification": "update",
    "receive_batch": "updates",
}
_FROM_CLIENT: Final[Mapping[StageMethod, str]] = {
    "receive_request": "request",
    "send_response": "response",
    "receive_cancel": "cancel",
    "receive_notification": "session_cancel",
    "send_notification": "update",
    "send_batch": "updates",
}
"""What takes each kind of message of the requests that are observed."""


class TurnObserver(Stage):
    """Observer of the turns of one component, or of the client with the whole chain."""

    name = "turns"
    sent: frozenset[str] = EVERY | HANDSHAKE | _REQUESTS | {SESSION_CANCEL, SESSION_UPDATE}
    received: frozenset[str] = sent

    def __init__(self, link: Link, speaks_version_2: Callable[[], bool]) -> None:
        self.link: Link = link
        self._steps = _FROM_CLIENT if link.role in CLIENT_ROLES else _TO_COMPONENT
        self._wants_updates = False
        self.turns: Turns[InFlightRequest] = Turns()
        self.turn_ended: Callable[[Ended[InFlightRequest]], None] = lambda ended: None
        """Called with the end of a turn that a state tells of (version 2)."""
        self.on_answered_prompt: Callable[[], None] | None = None
        """Called when a prompt was answered with a result."""
        self.cancels: CancelReports | None = None
        """Is told of cancelled turns and requests."""
        self._speaks_version_2 = speaks_version_2
        self._of_sessions: dict[InFlightRequest, str] = {}
        """Version 2: open requests that resume or end a session, with its id."""
        link.plain.insert(self)

    def takes(self, kind: StageMethod, method: str) -> bool:
        match self._steps.get(kind):
            case None:
                return False
            case "request":
                return method in _REQUESTS
            case "session_cancel":
                return method == SESSION_CANCEL
            case "update" | "updates":
                return method == SESSION_UPDATE and self._wants_updates
            case _:  # a handshake has `start_timeout`
                return method not in HANDSHAKE

    def step(self, kind: StageMethod, method: str) -> Callable[..., None]:
        found: Callable[..., None] = getattr(self, self._steps[kind])
        return found

    def request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """A request to the component, or of the client."""
        if method == PROMPT:
            if call.session is None:
                call.session = session_id_of(params)
            if call.session is not None:
                turns = self.turns.sessions.get(call.session)
                if turns is None:
                    self._note_version()
                    turns = self.turns.of(call.session)
                turns.prompt_sent(call, self._now())
        elif method in _OF_SESSIONS and self._note_version():
            session = session_id_of(params)
            if session is not None and method != "session/fork":
                self._of_sessions[call] = session
                if method == _RESUME:
                    self.turns.of(session).resume_sent()
        forward(call, method, params)

    def response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        """The answer to it."""
        if call.method == PROMPT:
            turns = self.turns.sessions.get(call.session or "")
            if turns is not None:
                turns.prompt_answered(call, self._now(), accepted=not call.refused)
            if self.on_answered_prompt is not None and not call.refused:
                self.on_answered_prompt()
        elif call in self._of_sessions:
            self._session_answered(call)
        if call.cancelled and self.cancels is not None:
            self.cancels.answered(call)
        forward(call, result, error)

    def cancel(self, forward: ForwardCancel, call: InFlightRequest) -> None:
        """The cancellation of a request."""
        if self.cancels is not None:
            self.cancels.cancelled(call)
        forward(call)

    def session_cancel(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        """The cancellation of a turn."""
        session = session_id_of(params) or ""
        turns = self.turns.sessions.get(session)
        if turns is not None and turns.cancel(trio.current_time()) and self.cancels is not None:
            self.cancels.cancelled(session)
        forward(method, params)

    def update(self, forward: ForwardNotification, method: str, params: Payload | None) -> None:
        """An update in the opposite direction."""
        if params is not None and _STATE in bytes(params):
            self._read_state(params)
        forward(method, params)

    def updates(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        """Several of them."""
        if notifications.contains(_STATE):
            for each in notifications.params:
                if _STATE in bytes(each):
                    self._read_state(each)
        forward(notifications)

    def _read_state(self, params: Payload) -> None:
        try:
            decoded = decode_with_surrogates(params, _decode)
        except ValueError:
            return
        update = decoded.update
        if update.sessionUpdate != "state_update":
            return
        turns = self.turns.of_agent(decoded.sessionId)
        if turns is None:
            return
        ended = turns.state(
            update.state,
            trio.current_time(),
            stop_reason=update.stopReason,
            background=update.background,
        )
        if ended is not None:
            self.turn_ended(ended)

    @cached_property
    def _now(self) -> Callable[[], float]:
        """trio's clock, in half the time of `trio.current_time`."""
        return trio.lowlevel.current_clock().current_time

    def _note_version(self) -> bool:
        """Record the version of the component; whether it is version 2."""
        wants = self._speaks_version_2()
        self.turns.version = 2 if wants else 1
        if wants != self._wants_updates:
            self._wants_updates = wants
            self.port.changed()
        return wants

    def _session_answered(self, call: InFlightRequest) -> None:
        turns = self.turns.sessions.get(self._of_sessions.pop(call))
        if turns is None:
            return
        if call.method == _RESUME:
            turns.resume_answered()
        elif call.method in SESSION_END_METHODS and not call.refused:
            turns.closed()


class _StateUpdate(msgspec.Struct, gc=False):
    sessionUpdate: str
    state: Any = None
    stopReason: Any = None
    background: Any = None


class _UpdateParams(msgspec.Struct, gc=False):
    sessionId: str
    update: _StateUpdate


_decode: Final = msgspec.json.Decoder(_UpdateParams).decode
