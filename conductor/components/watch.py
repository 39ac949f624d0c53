"""Watches a component's requests: those that take longer than they may, and turns that stall. Pure.

A turn stalls when a prompt is open and nothing at all comes from the agent for that session for
`stall_timeout` seconds. Silence while a tool runs, or while the agent itself waits for an answer (a
permission, a file, a tool of an MCP server over ACP), is not a hang. A stalled turn climbs a
ladder, one rung for every further `stall_timeout` of silence, up to the highest rung that the chain
file allows:

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

from conductor.components.alarm import NEVER
from conductor.connection.calls import Call
from conductor.frames import UNUSUAL
from conductor.messages import Payload
from conductor.session_ids import session_of

__all__ = ["LADDER", "Due", "Rung", "Stalled", "TimedOut", "Watch"]

Rung: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
LADDER: Final[tuple[Rung, ...]] = ("report", "cancel", "cancel_request", "restart")

_RUNNING: Final = frozenset({"pending", "in_progress"})


class TimedOut(msgspec.Struct, frozen=True):
    """A request was not answered in its time (`request_timeout`)."""

    call: Call
    seconds: float
    session: str | None = None
    """Of a prompt, whose turn has to end with it."""


class Stalled(msgspec.Struct, frozen=True):
    """A turn is silent: do what the rung says."""

    session: str
    calls: tuple[Call, ...]
    """The prompts of the session that are open."""
    rung: Rung
    seconds: float
    """How long it has been silent."""


Due: TypeAlias = TimedOut | Stalled


@attrs.define(eq=False)
class _Session:
    heard_at: float
    prompts: list[Call] = attrs.field(factory=list)
    running: bool = False
    """Whether the agent says that a turn runs (version 2)."""
    tools: set[str] = attrs.field(factory=set)
    questions: set[Call] = attrs.field(factory=set)
    climbed: int = 0

    @property
    def open(self) -> bool:
        return bool(self.prompts) or self.running


@attrs.define(eq=False)
class Watch:
    """Of one component. All times are in seconds, of the caller's clock."""

    request_timeout: Mapping[str, float] = attrs.field(factory=dict)
    stall_timeout: float | None = None
    highest: Rung = "report"
    _deadlines: dict[Call, float] = attrs.field(factory=dict, init=False)
    _sessions: dict[str, _Session] = attrs.field(factory=dict, init=False)
    """Those with a turn."""
    _session_of: dict[Call, str] = attrs.field(factory=dict, init=False)
    _questions: set[Call] = attrs.field(factory=set, init=False)
    """Those that name no session, and may be any turn's."""

    def asked(self, call: Call, method: str, params: Payload | None, now: float) -> float:
        """The component gets a request."""
        deadline = NEVER
        seconds = self.request_timeout.get(method)
        if seconds is not None:
            deadline = self._deadlines[call] = now + seconds
        if method != "session/prompt" or (name := session_of(params)) is None:
            return deadline
        session = self._sessions.setdefault(name, _Session(now))
        session.prompts.append(call)
        self._session_of[call] = name
        return min(deadline, self._heard(session, now))

    def answered(self, call: Call) -> None:
        """The component answered a request, or it was answered for it."""
        self._deadlines.pop(call, None)
        name = self._session_of.pop(call, None)
        if name is None or (session := self._sessions.get(name)) is None:
            return
        if call in session.prompts:
            session.prompts.remove(call)
        if not session.open:
            del self._sessions[name]

    def asks(self, call: Call, params: Payload | None, now: float) -> None:
        """The component asks something of its own: until it is answered, it waits for us."""
        name = session_of(params)
        if name is None:
            self._questions.add(call)
        elif (session := self._sessions.get(name)) is not None:
            session.questions.add(call)
            self._session_of[call] = name
            self._heard(session, now)

    def told(self, call: Call, now: float) -> float:
        """The component gets the answer to what it asked."""
        if call in self._questions:
            self._questions.discard(call)
            for session in self._sessions.values():
                self._heard(session, now)
            return self.next_deadline()
        name = self._session_of.pop(call, None)
        if name is None or (found := self._sessions.get(name)) is None:
            return NEVER
        found.questions.discard(call)
        return self._heard(found, now)

    def heard(self, method: str, params: Payload | None, now: float) -> float:
        """The component sent a notification."""
        name = session_of(params)
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
            if status in _RUNNING:
                session.tools.add(update.toolCallId)
            elif status is not None:
                session.tools.discard(update.toolCallId)
        return self._heard(session, now)

    def next_deadline(self) -> float:
        """When `due` may have something to say; infinite if never."""
        times = [*self._deadlines.values(), *map(self._stall_time, self._sessions.values())]
        return min(times, default=NEVER)

    def due(self, now: float) -> list[Due]:
        """What is overdue, each reported once (a stalled turn once for every rung)."""
        late = [call for call, deadline in self._deadlines.items() if deadline <= now]
        found: list[Due] = [self._timed_out(call) for call in late]
        for call in late:
            del self._deadlines[call]
        for name, session in self._sessions.items():
            if self._stall_time(session) <= now:
                rung, silent = LADDER[session.climbed], now - session.heard_at
                found.append(Stalled(name, tuple(session.prompts), rung, silent))
                session.climbed += 1
        return found

    def is_climbing(self, session: str) -> bool:
        """Whether a turn was cancelled for its silence, and more than that is still to come, or the
        component is being killed for it."""
        found = self._sessions.get(session)
        if found is None or not found.open or found.climbed <= LADDER.index("cancel"):
            return False
        return self.highest == "restart" or found.climbed <= LADDER.index(self.highest)

    def forget(self) -> None:
        """The component is gone."""
        self._deadlines.clear()
        self._sessions.clear()
        self._session_of.clear()
        self._questions.clear()

    def _timed_out(self, call: Call) -> TimedOut:
        session = self._session_of.get(call)
        return TimedOut(call, self.request_timeout[call.method], session)

    def _state(self, name: str, session: _Session | None, state: str | None, now: float) -> float:
        """The agent tells whether a turn runs (version 2)."""
        if state == "running":
            session = self._sessions.setdefault(name, _Session(now))
            session.running = True
            return self._heard(session, now)
        if session is not None:
            session.running = False  # idle, or waiting for the person
            if not session.open:
                del self._sessions[name]
        return NEVER

    def _heard(self, session: _Session, now: float) -> float:
        session.heard_at, session.climbed = now, 0
        return self._stall_time(session)

    def _stall_time(self, session: _Session) -> float:
        """When the turn will have been silent for so long that the next rung is due."""
        waits = session.tools or session.questions or self._questions or not session.open
        if self.stall_timeout is None or waits or session.climbed > LADDER.index(self.highest):
            return NEVER
        return session.heard_at + self.stall_timeout * (session.climbed + 1)


class _Update(msgspec.Struct, gc=False):
    sessionUpdate: str
    toolCallId: str | None = None
    status: str | None = None
    state: str | None = None


class _HasUpdate(msgspec.Struct, gc=False):
    update: _Update


_decode: Final = msgspec.json.Decoder(_HasUpdate).decode


def _update(params: Payload | None) -> _Update | None:
    try:
        return _decode(params if params is not None else b"null").update
    except UNUSUAL:
        return None
