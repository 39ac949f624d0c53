"""Detect prompt turns that stall, and requests that exceed `request_timeout`.

`StallDetector` is pure; `StallMonitor` feeds it from a link, and wakes at the deadlines.

A turn stalls when it runs (`acp.turns`) and the agent sends nothing for that session for
`stall_timeout` seconds. Silence while a tool call is pending or in progress, or while the agent
waits for a response (a permission, a file, a tool of an MCP server over ACP), is not a stall; nor
in version 2 while it waits for the user, or does not know whether it works. A stalled turn
escalates, one action for every further `stall_timeout` of silence, up to the last action that the
chain file allows:

    report → session/cancel → $/cancel_request → restart

What a subagent does in a session of its own counts for the turn of the session that started it.

Methods that record a message are called after `turns` has recorded it, and return the next deadline
that it may cause, or none, so the cost of watching does not depend on the number of sessions. Of
what the component alone names (sessions, subagents, tool calls of a turn), 1000 each are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import attrs
import msgspec
import trio

from conductor.acp import MAX_AGENTS_ID, PROMPT, announced_subagent, session_id_of
from conductor.acp.turns import SessionTurns, Turns
from conductor.bounded_dict import BoundedDict
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import HANDSHAKE
from conductor.routing.link import Link
from conductor.routing.stage import (
    EVERY,
    ForwardBatch,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    SeenRequests,
    Stage,
    StageMethod,
)
from conductor.supervision.deadlines import NEVER, Deadlines

__all__ = ["ESCALATION", "StallAction", "StallDetector", "StallMonitor", "StalledTurn"]

StallAction: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
ESCALATION: Final[tuple[StallAction, ...]] = ("report", "cancel", "cancel_request", "restart")

_RUNNING_STATUSES: Final = frozenset({"pending", "in_progress"})
_MAX_NAMED: Final = 1000
"""Maximum number of sessions, of subagents, and of tool calls of a turn that only the component
names. Further sessions and tool calls are not tracked, and the oldest subagents are dropped."""


class StalledTurn(msgspec.Struct, frozen=True):
    """A silent turn, and the escalation action that is due."""

    session: str
    calls: tuple[InFlightRequest, ...]
    """The open prompts of the session."""
    action: StallAction
    seconds: float
    """Duration of the silence."""


@attrs.define(eq=False)
class _WatchedSession:
    turns: SessionTurns[InFlightRequest]
    last_activity: float
    tools: set[tuple[str, str]] = attrs.field(factory=set)
    """Running tool calls, each with its session, which may be that of a subagent."""
    open_requests: set[InFlightRequest] = attrs.field(factory=set)
    actions_taken: int = 0


@attrs.define(eq=False)
class StallDetector:
    """Detector for one component with these turns. All times are in seconds of the caller's
    clock."""

    turns: Turns[InFlightRequest]
    stall_timeout: float | None = None
    max_action: StallAction = "report"
    _sessions: dict[str, _WatchedSession] = attrs.field(factory=dict, init=False)
    """Sessions with a turn; some may have ended."""
    _parents: BoundedDict[str, str] = attrs.field(
        factory=lambda: BoundedDict(_MAX_NAMED), init=False
    )
    """The user's session, which has an open turn, by the session of a subagent."""
    _session_of: dict[InFlightRequest, str] = attrs.field(factory=dict, init=False)
    """By open request of the component."""
    _open_requests: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests of the component without a session: they count for every turn."""

    def request_to(self, call: InFlightRequest, now: float) -> float:
        """Record a request to the component."""
        if call.method != PROMPT or call.session is None:
            return NEVER
        return self._note_turn(call.session, now)

    def response_from(self, call: InFlightRequest) -> None:
        """Record the response to a request, from the component or in its place."""
        if call.method == PROMPT:
            self._drop_if_ended(call.session or "")

    def request_from(self, call: InFlightRequest, params: Payload | None, now: float) -> None:
        """Record a request from the component; until its response, silence is not a stall."""
        name = session_id_of(params)
        name = self._parents.get(name, name) if name is not None else None
        if name is None:
            self._open_requests.add(call)
        elif (session := self._sessions.get(name)) is not None:
            session.open_requests.add(call)
            self._session_of[call] = name
            self._note_activity(session, now)

    def response_to(self, call: InFlightRequest, now: float) -> float:
        """Record the response to a request from the component."""
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
        """Record a notification from the component."""
        own = session_id_of(params)
        if own is None:
            return NEVER
        name = self._parents.get(own, own)
        session = self._sessions.get(name)
        update = _update(params) if method == "session/update" else None
        if update is not None and update.sessionUpdate == "state_update" and own == name:
            return self._note_turn(name, now)
        if session is None:
            return NEVER
        if (announced := announced_subagent(params)) is not None and announced[1] != name:
            self._note_subagent(announced[1], name)
        if update is not None and update.toolCallId is not None:
            # A `tool_call` without status is pending (schema); an update without one keeps it.
            status = update.status or ("pending" if update.sessionUpdate == "tool_call" else None)
            if status in _RUNNING_STATUSES:
                if len(session.tools) < _MAX_NAMED and len(update.toolCallId) <= MAX_AGENTS_ID:
                    session.tools.add((own, update.toolCallId))
            elif status is not None:
                session.tools.discard((own, update.toolCallId))
        return self._note_activity(session, now)

    def next_deadline(self) -> float:
        """The earliest deadline; infinite if there is none."""
        return min(map(self._stall_time, self._sessions.values()), default=NEVER)

    def overdue(self, now: float) -> list[StalledTurn]:
        """Stalled turns, each returned once per action."""
        found = []
        for name, session in self._sessions.items():
            if self._stall_time(session) <= now:
                action, silent_for = ESCALATION[session.actions_taken], now - session.last_activity
                prompts = tuple(each.key for each in session.turns.unanswered())
                found.append(StalledTurn(name, prompts, action, silent_for))
                session.actions_taken += 1
        return found

    def is_escalating(self, session: str) -> bool:
        """Whether a stalled turn was cancelled and further actions follow or are under way."""
        found = self._sessions.get(session)
        if (
            found is None
            or not found.turns.is_running
            or found.actions_taken <= ESCALATION.index("cancel")
        ):
            return False
        return self.max_action == "restart" or found.actions_taken <= ESCALATION.index(
            self.max_action
        )

    def forget(self) -> None:
        """Drop everything: the process of the component ended."""
        self._sessions.clear()
        self._parents.clear()
        self._session_of.clear()
        self._open_requests.clear()

    def _note_turn(self, name: str, now: float) -> float:
        """Record a prompt, or a reported state: activity of a turn, if one runs."""
        self._drop_if_ended(name)
        turns = self.turns.sessions.get(name)
        if turns is None or not turns.is_running:
            return NEVER
        return self._note_activity(
            self._sessions.setdefault(name, _WatchedSession(turns, now)), now
        )

    def _note_subagent(self, child: str, name: str) -> None:
        if child not in self._parents and len(child) <= MAX_AGENTS_ID:
            self._parents[child] = name

    def _drop_if_ended(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is None or session.turns.is_running:
            return
        del self._sessions[name]
        for child in [child for child, each in self._parents.items() if each == name]:
            del self._parents[child]

    def _note_activity(self, session: _WatchedSession, now: float) -> float:
        session.last_activity, session.actions_taken = now, 0
        return self._stall_time(session)

    def _stall_time(self, session: _WatchedSession) -> float:
        """The time at which the next action is due; `NEVER` while the turn may be silent."""
        turns = session.turns
        waits = session.tools or session.open_requests or self._open_requests
        if (
            self.stall_timeout is None
            or waits
            or turns.may_be_silent
            or not turns.is_running
            or session.actions_taken > ESCALATION.index(self.max_action)
        ):
            return NEVER
        return session.last_activity + self.stall_timeout * (session.actions_taken + 1)


@attrs.define(eq=False)
class StallMonitor(Stage):
    """Monitor of one component; `on_timeout` is called with each request that takes too long,
    `on_stall` with each stalled turn. Messages of the component are passed on first: the stage that
    feeds the turns of the detector comes after this one."""

    name = "stalls"
    sent: frozenset[str] = attrs.field(default=EVERY | HANDSHAKE, init=False)
    received: frozenset[str] = attrs.field(default=EVERY, init=False)

    detector: StallDetector
    request_timeout: Mapping[str, float]
    on_timeout: Callable[[InFlightRequest], None]
    on_stall: Callable[[StalledTurn], None]
    _due: Deadlines[InFlightRequest | None] = attrs.field(init=False)
    """Of requests, and `None` for the next silence."""

    def __attrs_post_init__(self) -> None:
        self._due = Deadlines(self._on_overdue)

    def insert(self, link: Link) -> None:
        """Observe the requests of both directions."""
        link.plain.insert(self)
        if link.enveloped is not None:
            link.enveloped.insert(SeenRequests(self.name, EVERY, self._asked, self._answered))

    def takes(self, kind: StageMethod, method: str) -> bool:
        return method not in HANDSHAKE and super().takes(kind, method)

    async def run(self) -> None:
        """Wait for deadlines until cancelled."""
        self.detector.forget()
        await self._due.run()

    def expect_silence(self, deadline: float) -> None:
        """Look for stalled turns at this time."""
        if deadline < self._due.get(None, NEVER):
            self._due[None] = deadline

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        now = trio.current_time()
        if (seconds := self.request_timeout.get(method)) is not None:
            self._due[call] = now + seconds
        self.expect_silence(self.detector.request_to(call, now))
        forward(call, method, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._due.pop(call, None)
        forward(call, result, error)
        self.detector.response_from(call)

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._asked(call, params)
        forward(call, method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self._answered(call)
        forward(call, result, error)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        forward(method, params)
        self.expect_silence(self.detector.notification_from(method, params, trio.current_time()))

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        forward(notifications)
        method, now = notifications.method, trio.current_time()
        for params in notifications.params:
            self.expect_silence(self.detector.notification_from(method, params, now))

    def _asked(self, call: InFlightRequest, params: Payload | None) -> None:
        """The component asks another one: silence is no stall until that answers."""
        self.detector.request_from(call, params, trio.current_time())

    def _answered(self, call: InFlightRequest) -> None:
        self.expect_silence(self.detector.response_to(call, trio.current_time()))

    def _on_overdue(self, call: InFlightRequest | None) -> None:
        if call is not None:
            self.on_timeout(call)
            return
        for turn in self.detector.overdue(trio.current_time()):
            self.on_stall(turn)
        self.expect_silence(self.detector.next_deadline())


class _ToolUpdate(msgspec.Struct, gc=False):
    sessionUpdate: str
    toolCallId: str | None = None
    status: str | None = None


class _HasUpdate(msgspec.Struct, gc=False):
    update: _ToolUpdate


_decode: Final = msgspec.json.Decoder(_HasUpdate).decode


def _update(params: Payload | None) -> _ToolUpdate | None:
    try:
        return decode_with_surrogates(b"null" if params is None else params, _decode).update
    except ValueError:
        return None
