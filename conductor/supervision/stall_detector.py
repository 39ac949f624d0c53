"""Watches a component's requests: those that take longer than they may, and turns that stall. Pure.

A turn stalls when a prompt is open and nothing at all comes from the agent for that session for
`stall_timeout` seconds. Silence while a tool runs, or while the agent itself waits for an answer (a
permission, a file, a tool of an MCP server over ACP), is not a hang. A stalled turn escalates, one
action for every further `stall_timeout` of silence, up to the last action that the chain file
allows:

    report → session/cancel → $/cancel_request → restart

In version 1 a turn is as long as its `session/prompt` is open; in version 2, where that is answered
at once, until the agent says `idle`.

What happens returns the next time at which something may be due because of it, so that keeping
watch costs the same however many sessions there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.supervision.deadline_timer import NEVER

__all__ = ["ESCALATION", "Overdue", "StallAction", "StallDetector", "Stalled", "TimedOut"]

StallAction: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
ESCALATION: Final[tuple[StallAction, ...]] = ("report", "cancel", "cancel_request", "restart")

_RUNNING_STATUSES: Final = frozenset({"pending", "in_progress"})


class TimedOut(msgspec.Struct, frozen=True):
    """A request was not answered in its time (`request_timeout`)."""

    call: InFlightRequest
    seconds: float
    session: str | None = None
    """Of a prompt, whose turn has to end with it."""


class Stalled(msgspec.Struct, frozen=True):
    """A turn is silent: do what the action says."""

    session: str
    calls: tuple[InFlightRequest, ...]
    """The prompts of the session that are open."""
    action: StallAction
    seconds: float
    """How long it has been silent."""


Overdue: TypeAlias = TimedOut | Stalled


@attrs.define(eq=False)
class _WatchedSession:
    last_activity: float
    prompts: list[InFlightRequest] = attrs.field(factory=list)
    running: bool = False
    """Whether the agent says that a turn runs (version 2)."""
    tools: set[str] = attrs.field(factory=set)
    open_requests: set[InFlightRequest] = attrs.field(factory=set)
    actions_taken: int = 0

    @property
    def open(self) -> bool:
        return bool(self.prompts) or self.running


@attrs.define(eq=False)
class StallDetector:
    """Of one component. All times are in seconds, of the caller's clock."""

    request_timeout: Mapping[str, float] = attrs.field(factory=dict)
    stall_timeout: float | None = None
    max_action: StallAction = "report"
    _deadlines: dict[InFlightRequest, float] = attrs.field(factory=dict, init=False)
    _sessions: dict[str, _WatchedSession] = attrs.field(factory=dict, init=False)
    """Those with a turn."""
    _session_of: dict[InFlightRequest, str] = attrs.field(factory=dict, init=False)
    _open_requests: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Those that name no session, and may be any turn's."""

    def request_to(
        self, call: InFlightRequest, method: str, params: Payload | None, now: float
    ) -> float:
        """The component gets a request."""
        deadline = NEVER
        seconds = self.request_timeout.get(method)
        if seconds is not None:
            deadline = self._deadlines[call] = now + seconds
        if method != "session/prompt" or (name := session_id_of(params)) is None:
            return deadline
        session = self._sessions.setdefault(name, _WatchedSession(now))
        session.prompts.append(call)
        self._session_of[call] = name
        return min(deadline, self._note_activity(session, now))

    def response_from(self, call: InFlightRequest) -> None:
        """The component answered a request, or it was answered for it."""
        self._deadlines.pop(call, None)
        name = self._session_of.pop(call, None)
        if name is None or (session := self._sessions.get(name)) is None:
            return
        if call in session.prompts:
            session.prompts.remove(call)
        if not session.open:
            del self._sessions[name]

    def request_from(self, call: InFlightRequest, params: Payload | None, now: float) -> None:
        """The component asks something of its own: until it is answered, it waits for us."""
        name = session_id_of(params)
        if name is None:
            self._open_requests.add(call)
        elif (session := self._sessions.get(name)) is not None:
            session.open_requests.add(call)
            self._session_of[call] = name
            self._note_activity(session, now)

    def response_to(self, call: InFlightRequest, now: float) -> float:
        """The component gets the answer to what it asked."""
        if call in self._open_requests:
            self._open_requests.discard(call)
            for session in self._sessions.values():
                self._note_activity(session, now)
            return self.next_deadline()
        name = self._session_of.pop(call, None)
        if name is None or (found := self._sessions.get(name)) is None:
            return NEVER
        found.open_requests.discard(call)
        return self._note_activity(found, now)

    def notification_from(self, method: str, params: Payload | None, now: float) -> float:
        """The component sent a notification."""
        name = session_id_of(params)
        if name is None:
            return NEVER
        session = self._sessions.get(name)
        update = _update(params) if method == "session/update" else None
        if update is not None and update.sessionUpdate == "state_update":
            return self._state(name, session, update.state, now)
        if session is None:
            return NEVER
        if update is not None and update.toolCallId is not None:
            # A call that says nothing of its status is pending (schema); an update keeps it.
            status = update.status or ("pending" if update.sessionUpdate == "tool_call" else None)
            if status in _RUNNING_STATUSES:
                session.tools.add(update.toolCallId)
            elif status is not None:
                session.tools.discard(update.toolCallId)
        return self._note_activity(session, now)

    def next_deadline(self) -> float:
        """When `overdue` may have something to say; infinite if never."""
        times = [*self._deadlines.values(), *map(self._stall_time, self._sessions.values())]
        return min(times, default=NEVER)

    def overdue(self, now: float) -> list[Overdue]:
        """What is overdue, each reported once (a stalled turn once for every action)."""
        late = [call for call, deadline in self._deadlines.items() if deadline <= now]
        found: list[Overdue] = [self._timed_out(call) for call in late]
        for call in late:
            del self._deadlines[call]
        for name, session in self._sessions.items():
            if self._stall_time(session) <= now:
                action, silent_for = ESCALATION[session.actions_taken], now - session.last_activity
                found.append(Stalled(name, tuple(session.prompts), action, silent_for))
                session.actions_taken += 1
        return found

    def is_escalating(self, session: str) -> bool:
        """Whether a turn was cancelled for its silence, and more than that is still to come, or the
        component is being killed for it."""
        found = self._sessions.get(session)
        if found is None or not found.open or found.actions_taken <= ESCALATION.index("cancel"):
            return False
        return self.max_action == "restart" or found.actions_taken <= ESCALATION.index(
            self.max_action
        )

    def forget(self) -> None:
        """The component is gone."""
        self._deadlines.clear()
        self._sessions.clear()
        self._session_of.clear()
        self._open_requests.clear()

    def _timed_out(self, call: InFlightRequest) -> TimedOut:
        session = self._session_of.get(call)
        return TimedOut(call, self.request_timeout[call.method], session)

    def _state(
        self, name: str, session: _WatchedSession | None, state: str | None, now: float
    ) -> float:
        """The agent tells whether a turn runs (version 2)."""
        if state == "running":
            session = self._sessions.setdefault(name, _WatchedSession(now))
            session.running = True
            return self._note_activity(session, now)
        if session is not None:
            session.running = False  # idle, or waiting for the person
            if not session.open:
                del self._sessions[name]
        return NEVER

    def _note_activity(self, session: _WatchedSession, now: float) -> float:
        session.last_activity, session.actions_taken = now, 0
        return self._stall_time(session)

    def _stall_time(self, session: _WatchedSession) -> float:
        """When the turn will have been silent for so long that the next action is due."""
        waits = session.tools or session.open_requests or self._open_requests or not session.open
        if (
            self.stall_timeout is None
            or waits
            or session.actions_taken > ESCALATION.index(self.max_action)
        ):
            return NEVER
        return session.last_activity + self.stall_timeout * (session.actions_taken + 1)


class _ToolUpdate(msgspec.Struct, gc=False):
    sessionUpdate: str
    toolCallId: str | None = None
    status: str | None = None
    state: str | None = None


class _HasUpdate(msgspec.Struct, gc=False):
    update: _ToolUpdate


_decode: Final = msgspec.json.Decoder(_HasUpdate).decode


def _update(params: Payload | None) -> _ToolUpdate | None:
    try:
        return _decode(params if params is not None else b"null").update
    except DECODE_ERRORS:
        return None
