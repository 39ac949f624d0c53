"""Monitors of one component: silent turns, requests over `request_timeout`, slow session set-ups.

A turn stalls when it runs (`acp.turns`) and the agent sends nothing for that session for
`stall_timeout` seconds. Silence while a tool call is pending or in progress, or while the agent
waits for a response (a permission, a file, a tool of an MCP server over ACP), is not a stall; nor
in version 2 while it waits for the user, or does not know whether it works. A stalled turn
escalates, one action for every further `stall_timeout` of silence, up to the last action that the
chain file allows:

    report → session/cancel → $/cancel_request → restart

What a subagent does in a session of its own counts for the turn of the session that started it.

A session set-up that takes longer than `SLOW` seconds is named: agents start MCP servers and read
histories meanwhile, some for minutes. A proxy that waits for its successor's answer is not named:
the successor is.

The cost of a message does not depend on the number of sessions. Of what the component alone names
(sessions, subagents, tool calls of a turn), 1000 each are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
import msgspec
import trio

from conductor.acp import (
    MAX_AGENTS_ID,
    PROMPT,
    SESSION_SETUP_METHODS,
    announced_subagent,
    session_id_of,
)
from conductor.acp.turns import SessionTurns, Turns
from conductor.bounded_dict import BoundedDict
from conductor.chainfile.model import OnStall
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates, decoded_members
from conductor.jsonrpc.messages import Payload, RawMember
from conductor.jsonrpc.notification_batch import SESSION_UPDATE, NotificationBatch
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
from conductor.supervision.deadlines import NEVER, SLOW, Deadlines

__all__ = ["SlowSetupMonitor", "StallMonitor", "StalledTurn"]

_ESCALATION: Final[tuple[OnStall, ...]] = ("report", "cancel", "cancel_request", "restart")
_RUNNING_STATUSES: Final = frozenset({"pending", "in_progress"})
_MAX_NAMED: Final = 1000
"""Maximum number of sessions, of subagents, and of tool calls of a turn that only the component
names. Further sessions and tool calls are not tracked, and the oldest subagents are dropped."""


class StalledTurn(msgspec.Struct, frozen=True):
    """A silent turn, and the escalation action that is due."""

    session: str
    calls: tuple[InFlightRequest, ...]
    """The open prompts of the session."""
    action: OnStall
    seconds: float
    """Duration of the silence."""


@attrs.define(eq=False)
class _WatchedSession:
    turns: SessionTurns[InFlightRequest]
    last_activity: float = 0.0
    tools: set[tuple[str, str]] = attrs.field(factory=set)
    """Running tool calls, each with its session, which may be that of a subagent."""
    open_requests: set[InFlightRequest] = attrs.field(factory=set)
    actions_taken: int = 0


@attrs.define(eq=False)
class StallMonitor(Stage):
    """Monitor of one component with these turns; `on_timeout` is called with each request that
    takes too long, `on_stall` with each stalled turn. Messages of the component are passed on
    first: the stage that feeds the turns comes after this one."""

    name = "stalls"
    sent: frozenset[str] = attrs.field(default=EVERY | HANDSHAKE, init=False)
    received: frozenset[str] = attrs.field(default=EVERY, init=False)

    turns: Turns[InFlightRequest]
    stall_timeout: float | None
    max_action: OnStall
    request_timeout: Mapping[str, float]
    on_timeout: Callable[[InFlightRequest], None]
    on_stall: Callable[[StalledTurn], None]
    _due: Deadlines[InFlightRequest | None] = attrs.field(init=False)
    """Of requests, and `None` for the next silence."""
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
        """Forget the process before this one, then wait for deadlines until cancelled."""
        self._sessions.clear()
        self._parents.clear()
        self._session_of.clear()
        self._open_requests.clear()
        await self._due.run()

    def is_escalating(self, session: str) -> bool:
        """Whether a stalled turn was cancelled and further actions follow or are under way."""
        found, last = self._sessions.get(session), _ESCALATION.index(self.max_action)
        if found is None or not found.turns.is_running:
            return False
        is_cancelled = found.actions_taken > _ESCALATION.index("cancel")
        return is_cancelled and (self.max_action == "restart" or found.actions_taken <= last)

    # -- Stage -------------------------------------------------------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if (seconds := self.request_timeout.get(method)) is not None:
            self._due[call] = trio.current_time() + seconds
        if method == PROMPT and call.session is not None:
            self._note_turn(call.session)
        forward(call, method, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        self._due.pop(call, None)
        forward(call, result, error)
        if call.method == PROMPT:
            self._drop_if_ended(call.session or "")

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self._asked(call, params)
        forward(call, method, params)

    def send_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        self._answered(call)
        forward(call, result, error)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        forward(method, params)
        self._note_notification(method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        forward(notifications)
        for params in notifications.params:
            self._note_notification(notifications.method, params)

    # -- what the component does -------------------------------------------------------------------

    def _asked(self, call: InFlightRequest, params: Payload | None) -> None:
        """The component asks another one: silence is no stall until that answers."""
        name = session_id_of(params)
        if name is None:
            self._open_requests.add(call)
            return
        name = self._parents.get(name, name)
        if (session := self._sessions.get(name)) is not None:
            session.open_requests.add(call)
            self._session_of[call] = name

    def _answered(self, call: InFlightRequest) -> None:
        if call in self._open_requests:
            self._open_requests.discard(call)
            for session in self._sessions.values():
                self._note_activity(session)
            return
        found = self._sessions.get(self._session_of.pop(call, ""))
        if found is not None and call in found.open_requests:
            found.open_requests.discard(call)
            self._note_activity(found)

    def _note_notification(self, method: str, params: Payload | None) -> None:
        own = session_id_of(params)
        if own is None:
            return
        name = self._parents.get(own, own)
        update = _update(params) if method == SESSION_UPDATE else None
        if update is not None and update.sessionUpdate == "state_update" and own == name:
            self._note_turn(name)
            return
        session = self._sessions.get(name)
        if session is None:
            return
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
        self._note_activity(session)

    def _note_turn(self, name: str) -> None:
        """Record a prompt, or a reported state: activity of a turn, if one runs."""
        self._drop_if_ended(name)
        turns = self.turns.sessions.get(name)
        if turns is not None and turns.is_running:
            self._note_activity(self._sessions.setdefault(name, _WatchedSession(turns)))

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

    def _note_activity(self, session: _WatchedSession) -> None:
        session.last_activity, session.actions_taken = trio.current_time(), 0
        self._expect_silence(self._stall_time(session))

    # -- silence -----------------------------------------------------------------------------------

    def _expect_silence(self, deadline: float) -> None:
        """Look for stalled turns at this time."""
        if deadline < self._due.get(None, NEVER):
            self._due[None] = deadline

    def _stall_time(self, session: _WatchedSession) -> float:
        """The time at which the next action is due; `NEVER` while the turn may be silent."""
        turns = session.turns
        waits = session.tools or session.open_requests or self._open_requests
        if (
            self.stall_timeout is None
            or waits
            or turns.may_be_silent
            or not turns.is_running
            or session.actions_taken > _ESCALATION.index(self.max_action)
        ):
            return NEVER
        return session.last_activity + self.stall_timeout * (session.actions_taken + 1)

    def _on_overdue(self, call: InFlightRequest | None) -> None:
        if call is not None:
            self.on_timeout(call)
            return
        now = trio.current_time()
        for name, session in list(self._sessions.items()):
            if self._stall_time(session) <= now:
                action, silent_for = _ESCALATION[session.actions_taken], now - session.last_activity
                prompts = tuple(each.key for each in session.turns.unanswered())
                session.actions_taken += 1
                self.on_stall(StalledTurn(name, prompts, action, silent_for))
        self._expect_silence(min(map(self._stall_time, self._sessions.values()), default=NEVER))


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
