"""Watches a component's requests: those that take longer than they may, and turns that stall. Pure.

A turn stalls when a prompt is open and nothing at all comes from the agent for that session for
`stall_timeout` seconds. Silence while a tool runs, or while the agent itself waits for an answer (a
permission, a file), is not a hang. A stalled turn climbs a ladder, one rung for every further
`stall_timeout` of silence, up to the highest rung that the chain file allows:

    report → session/cancel → $/cancel_request → restart
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from conductor.connection.calls import Call
from conductor.messages import Payload
from conductor.routing.recollection import session_of

__all__ = ["LADDER", "Due", "Rung", "Stalled", "TimedOut", "Watch"]

Rung: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
LADDER: Final[tuple[Rung, ...]] = ("report", "cancel", "cancel_request", "restart")

_RUNNING: Final = frozenset({"pending", "in_progress"})


@attrs.frozen
class TimedOut:
    """A request was not answered in its time (`request_timeout`)."""

    call: Call
    seconds: float


@attrs.frozen
class Stalled:
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
    tools: set[str] = attrs.field(factory=set)
    questions: set[Call] = attrs.field(factory=set)
    climbed: int = 0

    @property
    def may_stall(self) -> bool:
        return bool(self.prompts) and not self.tools and not self.questions


@attrs.define(eq=False)
class Watch:
    """Of one component. All times are in seconds, of the caller's clock."""

    request_timeout: Mapping[str, float] = attrs.field(factory=dict)
    stall_timeout: float | None = None
    highest: Rung = "report"
    _deadlines: dict[Call, float] = attrs.field(factory=dict, init=False)
    _sessions: dict[str, _Session] = attrs.field(factory=dict, init=False)
    _session_of: dict[Call, str] = attrs.field(factory=dict, init=False)

    def asked(self, call: Call, method: str, params: Payload | None, now: float) -> None:
        """The component gets a request."""
        seconds = self.request_timeout.get(method)
        if seconds is not None:
            self._deadlines[call] = now + seconds
        if method == "session/prompt" and (name := session_of(params)) is not None:
            session = self._heard(name, now)
            session.prompts.append(call)
            self._session_of[call] = name

    def answered(self, call: Call) -> None:
        """The component answered a request, or it was answered for it."""
        self._deadlines.pop(call, None)
        name = self._session_of.pop(call, None)
        if name is None or (session := self._sessions.get(name)) is None:
            return
        session.prompts.remove(call)
        if not session.prompts:
            del self._sessions[name]

    def asks(self, call: Call, params: Payload | None, now: float) -> None:
        """The component asks something of its own: until it is answered, it waits for us."""
        name = session_of(params)
        if name in self._sessions:
            self._heard(name, now).questions.add(call)
            self._session_of[call] = name

    def told(self, call: Call, now: float) -> None:
        """The component gets the answer to what it asked."""
        name = self._session_of.pop(call, None)
        if name in self._sessions:
            self._heard(name, now).questions.discard(call)

    def heard(self, method: str, params: Payload | None, now: float) -> None:
        """The component sent a notification."""
        name = session_of(params)
        if name not in self._sessions:
            return
        session = self._heard(name, now)
        if method == "session/update" and (update := _tool_update(params)) is not None:
            if update.status in _RUNNING:
                session.tools.add(update.toolCallId)
            elif update.status is not None:
                session.tools.discard(update.toolCallId)

    def next_deadline(self) -> float:
        """When `due` may have something to say; infinite if never."""
        times = list(self._deadlines.values())
        if self.stall_timeout is not None:
            times += [
                session.heard_at + self.stall_timeout * (session.climbed + 1)
                for session in self._sessions.values()
                if session.may_stall and session.climbed <= LADDER.index(self.highest)
            ]
        return min(times, default=float("inf"))

    def due(self, now: float) -> list[Due]:
        """What is overdue, each reported once (a stalled turn once for every rung)."""
        late = [call for call, deadline in self._deadlines.items() if deadline <= now]
        found: list[Due] = [TimedOut(call, self.request_timeout[call.method]) for call in late]
        for call in late:
            del self._deadlines[call]
        if self.stall_timeout is None:
            return found
        for name, session in self._sessions.items():
            silent = now - session.heard_at
            if (
                session.may_stall
                and session.climbed <= LADDER.index(self.highest)
                and silent >= self.stall_timeout * (session.climbed + 1)
            ):
                rung = LADDER[session.climbed]
                found.append(Stalled(name, tuple(session.prompts), rung, silent))
                session.climbed += 1
        return found

    def forget(self) -> None:
        """The component is gone."""
        self._deadlines.clear()
        self._sessions.clear()
        self._session_of.clear()

    def _heard(self, name: str | None, now: float) -> _Session:
        assert name is not None
        session = self._sessions.setdefault(name, _Session(now))
        session.heard_at, session.climbed = now, 0
        return session


class _ToolUpdate(msgspec.Struct, gc=False):
    toolCallId: str
    status: str | None = None


class _Update(msgspec.Struct, gc=False):
    update: _ToolUpdate


_decode: Final = msgspec.json.Decoder(_Update).decode


def _tool_update(params: Payload | None) -> _ToolUpdate | None:
    try:
        return _decode(params if params is not None else b"null").update
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
