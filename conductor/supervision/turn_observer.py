"""Feed the turns of a link (`acp.turns`) with what passes it, and report cancellations.

Costs nothing per update in version 1. In version 2 the end of a turn is an update: every update is
searched for one word, and only those that contain it are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from conductor.acp import PROMPT, SESSION_END_METHODS, SESSION_SETUP_METHODS, session_id_of
from conductor.acp.turns import Ended, Turns
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
from conductor.routing.component import CancelReports
from conductor.routing.link import Link
from conductor.routing.observers import LinkObserver

__all__ = ["TurnObserver"]

_STATE: Final = b"state_update"
_RESUME: Final = "session/resume"
_OF_SESSIONS: Final = SESSION_SETUP_METHODS | SESSION_END_METHODS


class TurnObserver(LinkObserver):
    """Observer of the turns of one component, or of the client with the whole chain."""

    def __init__(self, link: Link, speaks_version_2: Callable[[], bool]) -> None:
        self.link: Link = link
        self.wants_notifications: bool = False
        self._changed: Callable[[], None] = lambda: None
        self.turns: Turns[InFlightRequest] = Turns()
        self.turn_ended: Callable[[Ended[InFlightRequest]], None] = lambda ended: None
        """Called with the end of a turn that a state tells of (version 2)."""
        self.cancels: CancelReports | None = None
        """Is told of cancelled turns and requests."""
        self._speaks_version_2 = speaks_version_2
        self._of_sessions: dict[InFlightRequest, str] = {}
        """Version 2: open requests that resume or end a session, with its id."""

    def added(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method == PROMPT:
            if call.session is None:
                call.session = session_id_of(params)
            if call.session is not None:
                turns = self.turns.sessions.get(call.session)
                if turns is None:
                    self._note_version()
                    turns = self.turns.of(call.session)
                turns.prompt_sent(call, trio.current_time())
        elif method in _OF_SESSIONS and self._note_version():
            session = session_id_of(params)
            if session is not None and method != "session/fork":
                self._of_sessions[call] = session
                if method == _RESUME:
                    self.turns.of(session).resume_sent()

    def on_response(self, call: InFlightRequest) -> None:
        if call.method == PROMPT:
            turns = self.turns.sessions.get(call.session or "")
            if turns is not None:
                turns.prompt_answered(call, trio.current_time(), accepted=not call.refused)
        elif call in self._of_sessions:
            self._session_answered(call)
        if call.cancelled and self.cancels is not None:
            self.cancels.answered(call)

    def on_cancel_request(self, call: InFlightRequest) -> None:
        if call.method != "initialize" and self.cancels is not None:  # has `start_timeout`
            self.cancels.cancelled(call)

    def on_session_cancel(self, params: Payload | None) -> None:
        session = session_id_of(params) or ""
        turns = self.turns.sessions.get(session)
        if turns is not None and turns.cancel(trio.current_time()) and self.cancels is not None:
            self.cancels.cancelled(session)

    def on_notification(self, method: str, params: Payload | None) -> None:
        if method != SESSION_UPDATE or params is None or _STATE not in bytes(params):
            return
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

    def on_notifications(self, notifications: NotificationBatch) -> None:
        if notifications.method == SESSION_UPDATE and notifications.contains(_STATE):
            super().on_notifications(notifications)

    def _note_version(self) -> bool:
        """Record the version of the component; whether it is version 2."""
        wants = self._speaks_version_2()
        self.turns.version = 2 if wants else 1
        if wants != self.wants_notifications:
            self.wants_notifications = wants
            self._changed()
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
