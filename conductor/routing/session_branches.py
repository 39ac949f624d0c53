"""Session branches: each session of a client has its chain, the first one or a further one. Pure.

    client ⇄ SessionBranches ⇄ the first chain, or the `Branch` of a further one

`choose` decides where a session is set up; from then on, messages of the session go to that chain.
Messages of a subagent's session go to the chain that has announced it, those of an MCP server over
ACP to the chain that has connected to it, `authenticate` to the chain that has required it last, a
`logout` also to the others, everything else to the first chain. Ids belong to the connection of
each hop, so those of several chains do not clash. A session of a branch that has the id of another
chain's gets another id for the client.

A chain speaks for its own sessions, terminals and connections to MCP servers: what it sends for
those of another one, past the `permissions` there, is dropped or refused, and logged. Sessions that
no chain has are not checked: agents send updates before the response that names a session, and
have subagents that they do not announce.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from conductor.acp import (
    LOGIN_METHODS,
    LOGOUT_METHODS,
    MAX_AGENTS_ID,
    MCP_METHODS,
    PROMPT,
    SESSION_CANCEL,
    SESSION_CREATING_METHODS,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    announced_subagent,
    message_names,
    named_sessions,
    session_id_of,
)
from conductor.bounded_dict import BoundedDict
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import ConductorError, RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest, RequestOriginator
from conductor.jsonrpc.json_object import (
    join_members,
    list_items,
    member_at,
    members_or_empty,
    object_members,
)
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Payload,
    RawMember,
    encode_error,
    error_to_exception,
    exception_to_error,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.session_log import SetupRecord
from conductor.routing.session_names import SessionNames
from conductor.routing.stage import (
    EVERY,
    ForwardBatch,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StageMethod,
)

__all__ = ["Branch", "OwnRequest", "SessionBranches"]

_SESSION_ID_TAKEN: Final = encode_error(
    INTERNAL_ERROR,
    "The agent gave the new session the id of one that another process of it has given; sessions "
    "in several processes need an agent whose ids are unique",
)
_NOT_ITS_OWN: Final = encode_error(INVALID_PARAMS, "Invalid params", "it belongs to another chain")
_NO_SESSION: Final = encode_error(INVALID_PARAMS, "There is no such session")
_MAX_SUBAGENTS: Final = 1000
"""Sessions of subagents of one chain that are remembered; the oldest are forgotten."""
_MAX_IDS: Final = 1000
"""Servers, and terminals, of one chain that are remembered; the oldest are forgotten."""
_CLOSE: Final = "session/close"
_LIST: Final = "session/list"
_ALWAYS: Final = SESSION_SETUP_METHODS | {_CLOSE}
"""Requests that are looked at before there is a branch."""


class OwnRequest:
    """Originator of a request that the conductor itself sends to a branch."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[Payload | None, Payload | None], None]) -> None:
        self._answered = answered

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        self._answered(result, error)


class ResponseWatch:
    """Calls a function with the response to a request of the client, which has got it then."""

    __slots__ = ("_answered", "_source")

    def __init__(
        self, call: InFlightRequest, answered: Callable[[Payload | None, Payload | None], None]
    ) -> None:
        self._source: RequestOriginator = call.source
        self._answered = answered
        call.source = self

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        call.source = self._source
        self._source.respond(call, result, error)
        self._answered(result, error)


class Branch(Stage):
    """A further chain: the stage of its link that says whose messages these are.

    `link` is connected to the chain, which is an agent there; `on_idle` is called when its last
    session has ended.
    """

    __slots__ = (
        "_branches",
        "_names",
        "is_closing",
        "link",
        "on_idle",
        "opening",
        "servers",
        "sessions",
        "subagents",
        "terminals",
    )

    name = "session branches"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY

    def __init__(self, branches: SessionBranches, link: Link, on_idle: Callable[[], None]) -> None:
        self._branches = branches
        self._names: SessionNames | None = None
        self.link: Link = link
        self.on_idle: Callable[[], None] = on_idle
        self.is_closing: bool = False
        """Whether it takes no more sessions."""
        self.sessions: set[str] = set()
        self.subagents: BoundedDict[str, None] = BoundedDict(_MAX_SUBAGENTS)
        """Sessions of subagents; the chain ends without them."""
        self.servers: BoundedDict[str, None] = BoundedDict(_MAX_IDS)
        """MCP servers over ACP that the client has declared for its sessions."""
        self.terminals: BoundedDict[str, None] = BoundedDict(_MAX_IDS)
        """Terminals that the client has created for it."""
        self.opening: int = 0
        """Session set-ups under way."""
        link.plain.insert(self)
        link.plain.connect(branches.port)
        branches.add(self)

    def check_idle(self) -> None:
        if not self.sessions and not self.opening:
            self.on_idle()

    def rename(self, session: str, payload: Payload) -> Payload:
        """Raw JSON of this chain with another id for one of its sessions, from now on, if possible:
        another chain has a session of this id."""
        if self._names is None:
            self._names = SessionNames(self.sessions)
            self.link.plain.insert(self._names)
        self._names.exchange(f"{session}-{os.urandom(4).hex()}", session)
        return self._names.of_client(payload)

    # -- Stage: messages of the chain --------------------------------------------------------------

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        params = self._with_own_id(params)
        if self._branches.asks(self, call, method, params):
            self._branches.port.send(self._branches, call, method, params)
        else:
            self.port.respond(call, None, _NOT_ITS_OWN)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        params = self._with_own_id(params)
        if self._branches.tells(self, method, params):
            self._branches.port.send(self._branches, None, method, params)

    def receive_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        if self.opening:
            params = [self._with_own_id(each) or b"{}" for each in notifications.params]
            notifications = NotificationBatch(notifications.method, params)
        if (own := self._branches.own_part(self, notifications)) is not None:
            self._branches.port.send_batch(self._branches, own)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        if isinstance(call.source, OwnRequest):
            call.source.respond(call, result, error)
        else:
            answer = self._branches.answer_of(self, call, result, error)
            self._branches.port.send_response(self._branches, call, *answer)

    def _with_own_id(self, params: Payload | None) -> Payload | None:
        """Some agents send updates of a new session before the response that names it."""
        if not self.opening or params is None:
            return params
        session = session_id_of(params)
        if session is None or not self._branches.is_of_another(session, self):
            return params
        return self.rename(session, params)


class SessionBranches(Stage):
    """The stage of the client's port before all its chains.

    `choose` returns the chain for a session set-up, `None` for the first one, and may raise
    `ConductorError`. `open_sessions` are all open sessions of the client; `report` gets the chain
    that has sent a message for what belongs to another one, and what names the message.
    """

    __slots__ = (
        "_asked",
        "_choose",
        "_is_needed",
        "_lists",
        "_login",
        "_mcp",
        "_open_sessions",
        "_opening",
        "_report",
        "_subagents",
        "branches",
        "closes_sessions",
        "is_first_spent",
        "sessions",
    )

    name = "session branches"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY | _ALWAYS

    def __init__(
        self,
        choose: Callable[[InFlightRequest, str, Payload | None], Branch | None],
        report: Callable[[str, dict[str, object]], None],
        open_sessions: Mapping[str, SetupRecord],
    ) -> None:
        self._choose, self._report, self._open_sessions = choose, report, open_sessions
        self.sessions: dict[str, Branch] = {}
        self.branches: list[Branch] = []
        self.closes_sessions: bool = False
        """Whether `session/close` is answered here, for an agent that cannot."""
        self.is_first_spent: bool = False
        """Whether the first chain has a session that was closed here."""
        self._is_needed = False
        self._asked: dict[InFlightRequest, Branch] = {}
        """Requests of branches that the client has not answered."""
        self._mcp: dict[str, Branch] = {}
        """Chains by the id of their connection to an MCP server over ACP."""
        self._opening: list[str | None] = []
        """Session set-ups under way in the first chain: sessions that it loads or resumes."""
        self._subagents: BoundedDict[str, None] = BoundedDict(_MAX_SUBAGENTS)
        """Sessions of subagents of the first chain."""
        self._lists: dict[InFlightRequest, str | None] = {}
        """Unanswered `session/list` requests, and the directory that they are about."""
        self._login: Branch | None = None

    def takes(self, kind: StageMethod, method: str) -> bool:
        is_needed = self._is_needed or (kind == "receive_request" and method in _ALWAYS)
        return is_needed and super().takes(kind, method)

    def add(self, branch: Branch) -> None:
        """A further chain is started."""
        self.branches.append(branch)
        if not self._is_needed:
            self._is_needed = True
            self.port.changed()

    def remove(self, branch: Branch) -> None:
        """The chain has ended. Requests for its sessions are answered by its link."""
        self.branches.remove(branch)
        for session in branch.subagents:
            self.sessions.pop(session, None)
        self._mcp = {name: owner for name, owner in self._mcp.items() if owner is not branch}
        if self._login is branch:
            self._login = None

    @property
    def first_is_opening(self) -> bool:
        """Whether a session set-up is under way in the first chain."""
        return bool(self._opening)

    # -- from the client ---------------------------------------------------------------------------

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if method in SESSION_SETUP_METHODS:
            self._set_up(forward, call, method, params)
            return
        branch = self._branch_for(call, method, params)
        if method == _CLOSE and self.closes_sessions:
            self._close(branch, call, params)
            return
        if branch is not None:
            if method in SESSION_END_METHODS:
                ResponseWatch(call, lambda result, _: self._ended(branch, params, result))
            branch.link.plain.request(call, method, params)
            return
        if method == _LIST:
            self._note_list(call, params)
        forward(call, method, params)
        if method in LOGOUT_METHODS:
            for each in self.branches:
                own = InFlightRequest(method, OwnRequest(lambda result, error: None))
                each.link.plain.request(own, method, params)

    def receive_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        branch = self._branch_for(None, method, params)
        (forward if branch is None else branch.link.plain.notify)(method, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        branch = self._asked.pop(call, None)
        if branch is None:
            forward(call, result, error)
            return
        ids = _ids_of(result) if call.method in ("mcp/connect", "terminal/create") else {}
        if (connection := ids.get("connectionId")) is not None:
            self._mcp[connection] = branch
        if (terminal := ids.get("terminalId")) is not None:
            branch.terminals[terminal] = None
        branch.link.plain.respond(call, result, error)

    def _branch_for(
        self, call: InFlightRequest | None, method: str, params: Payload | None
    ) -> Branch | None:
        """The further chain that a message is for; `None` for the first chain."""
        if method in MCP_METHODS:
            return self._mcp.get(_ids_of(params).get("connectionId", ""))
        if method in LOGIN_METHODS:
            return self._login
        known = call.session if call is not None and method == PROMPT else None
        return self.sessions.get(known or session_id_of(params) or "")

    def _set_up(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        try:
            branch = self._choose(call, method, params)
        except ConductorError as exc:
            self.port.respond(call, None, exception_to_error(exc))
            return
        session = None if method in SESSION_CREATING_METHODS else session_id_of(params)
        new = None if self.sessions.get(session or "") is branch else session
        ResponseWatch(call, partial(self._opened, branch, session, new))
        if branch is None:
            self._opening.append(session)
            if new is not None:
                self.release(new, self.sessions[new])
            forward(call, method, params)
            return
        branch.opening += 1
        for server in _declared_servers(params):
            branch.servers[server] = None
        if session is not None:
            self.assign(session, branch)  # the client may use it before the response
        branch.link.plain.request(call, method, params)

    def _opened(
        self,
        branch: Branch | None,
        session: str | None,
        new: str | None,
        result: RawMember,
        error: RawMember,
    ) -> None:
        """A set-up was answered: of `session`, if it is known, and of `new`, if another chain or
        none had it before."""
        if result is None:
            failure = None if error is None else error_to_exception(error)
            if isinstance(failure, RequestError) and failure.code == AUTHENTICATION_REQUIRED:
                self._login = branch
        if branch is None:
            self._opening.remove(session)
            return
        branch.opening -= 1
        if result is None and new is not None:
            self.release(new, branch)
        branch.check_idle()

    def _ended(self, branch: Branch, params: Payload | None, result: RawMember) -> None:
        session = session_id_of(params)
        if result is not None and session is not None:
            self.release(session, branch)
            branch.check_idle()

    def _close(self, branch: Branch | None, call: InFlightRequest, params: Payload | None) -> None:
        """Close a session for an agent that cannot: its process ends, if it is of a branch."""
        if session_id_of(params) not in self._open_sessions:
            self.port.respond(call, None, _NO_SESSION)
            return
        port = self.port.neighbour if branch is None else branch.link.plain
        port.notify(SESSION_CANCEL, params)
        self.port.respond(call, b"{}", None)
        if branch is None:
            self.is_first_spent = True
        else:
            self._ended(branch, params, b"{}")

    def _note_list(self, call: InFlightRequest, params: Payload | None) -> None:
        """Sessions of branches are added to the first page of a list."""
        if self.sessions and member_at(params or b"{}", "cursor") in (None, b"null"):
            self._lists[call] = _text(member_at(params or b"{}", "cwd"))

    # -- from the first chain to the client --------------------------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self.asks(None, call, method, params):
            forward(call, method, params)
        else:
            self.port.answer(self, call, None, _NOT_ITS_OWN)

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        if self.tells(None, method, params):
            forward(method, params)

    def send_batch(self, forward: ForwardBatch, notifications: NotificationBatch) -> None:
        if (own := self.own_part(None, notifications)) is not None:
            forward(own)

    def send_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        if call.method == _LIST and call in self._lists:
            cwd = self._lists.pop(call)
            result = None if result is None else self._with_others(result, cwd)
        forward(call, *self.answer_of(None, call, result, error))

    # -- from any chain to the client; `branch` is `None` for the first one ------------------------

    def asks(
        self, branch: Branch | None, call: InFlightRequest, method: str, params: Payload | None
    ) -> bool:
        """Whether a chain may send this request, whose response it gets then."""
        if self._is_foreign(branch, method, params):
            return False
        if branch is not None:
            self._asked[call] = branch
            if method == "mcp/disconnect":
                self._mcp.pop(_ids_of(params).get("connectionId", ""), None)
        return True

    def tells(self, branch: Branch | None, method: str, params: Payload | None) -> bool:
        """Whether a chain may send this notification."""
        if self._is_foreign(branch, method, params):
            return False
        self._note_subagent(branch, params)
        return True

    def own_part(
        self, branch: Branch | None, notifications: NotificationBatch
    ) -> NotificationBatch | None:
        """The notifications that a chain may send; `None` if it may send none."""
        method = notifications.method
        own = [each for each in notifications.params if not self._is_foreign(branch, method, each)]
        if len(own) < notifications.count:
            notifications = NotificationBatch(method, own)
        if notifications.contains(b"subagent_update"):
            for each in own:
                self._note_subagent(branch, each)
        return notifications if own else None

    def answer_of(
        self,
        branch: Branch | None,
        call: InFlightRequest,
        result: RawMember,
        error: RawMember,
    ) -> tuple[Payload | None, Payload | None]:
        """The response of a chain, with the id that a new session has for the client."""
        creates = call.method in SESSION_CREATING_METHODS and result is not None
        if not creates or (session := session_id_of(result)) is None:
            return result, error
        if self._is_taken(session, branch):
            if branch is None or result is None:
                return None, _SESSION_ID_TAKEN
            result = branch.rename(session, result)
            session = session_id_of(result)
            if session is None or self._is_taken(session, branch):
                return None, _SESSION_ID_TAKEN
        if branch is not None:
            self.assign(session, branch)
        return result, None

    def _is_taken(self, session: str, branch: Branch | None) -> bool:
        """Whether another chain has a session of this id. That it has announced it as a subagent's
        does not count: the id could be guessed."""
        owner = self.sessions.get(session)
        if owner is not None and owner is not branch and session not in owner.sessions:
            self.release(session, owner)
            owner = None
        if owner is None and branch is not None:
            return session in self._open_sessions
        return owner is not branch

    def _with_others(self, result: Payload, cwd: str | None) -> Payload:
        """The raw result of a `session/list` with the open sessions of branches that are not in
        it."""
        try:
            members = object_members(result)
            listed = list_items(members["sessions"])
            known = {session_id_of(each) for each in listed}
            for session, branch in self.sessions.items():
                record = self._open_sessions.get(session)
                if session in known or session not in branch.sessions or record is None:
                    continue
                where = member_at(record.params or b"{}", "cwd")
                if where is not None and cwd in (None, _text(where)):
                    item = {"sessionId": msgspec.json.encode(session), "cwd": where}
                    listed.append(join_members(item))
        except (ValueError, KeyError):
            return result
        return join_members({**members, "sessions": b"[%b]" % b",".join(listed)})

    # -- what a chain may speak for ----------------------------------------------------------------

    def _is_foreign(self, branch: Branch | None, method: str, params: Payload | None) -> bool:
        """Whether a message to the client is for what belongs to another chain than its own; it is
        logged then."""
        try:
            is_foreign = any(self.is_of_another(each, branch) for each in named_sessions(params))
            if not is_foreign and (method in MCP_METHODS or method.startswith("terminal/")):
                is_foreign = self._names_foreign_id(branch, method, _read_ids(params))
            problem = {}
        except (ValueError, *DECODE_ERRORS) as exc:
            is_foreign = bytes(params or b"").lstrip().startswith(b"{")
            problem = {"problem": str(exc)}
        if is_foreign:
            chain = "the first" if branch is None else branch.link.name
            self._report(chain, message_names(method, params) | problem)
        return is_foreign

    def is_of_another(self, session: str, branch: Branch | None) -> bool:
        """Whether the session belongs to another chain than this one."""
        owner = self.sessions.get(session)
        if owner is not None or branch is None:
            return owner is not branch
        return any(
            session in each for each in (self._open_sessions, self._opening, self._subagents)
        )

    def _names_foreign_id(self, branch: Branch | None, method: str, ids: Mapping[str, str]) -> bool:
        """Ids of the first chain may be from before the first further chain: it may use each that
        no further chain has, and a further chain only its own."""
        connection, terminal = ids.get("connectionId"), ids.get("terminalId")
        if branch is None:
            return connection in self._mcp or any(
                terminal in each.terminals for each in self.branches
            )
        servers = (ids.get("serverId"), ids.get("acpId")) if method in MCP_METHODS else ()
        return (
            (connection is not None and self._mcp.get(connection) is not branch)
            or (terminal is not None and terminal not in branch.terminals)
            or any(each is not None and each not in branch.servers for each in servers)
        )

    # -- which chain has a session -----------------------------------------------------------------

    def assign(self, session: str, branch: Branch) -> None:
        """From now on, messages of this session go to this chain."""
        before = self.sessions.get(session)
        self.sessions[session] = branch
        branch.sessions.add(session)
        if before is not None and before is not branch:
            before.sessions.discard(session)

    def release(self, session: str, branch: Branch) -> None:
        """The session has ended."""
        branch.sessions.discard(session)
        if self.sessions.get(session) is branch:
            del self.sessions[session]

    def _note_subagent(self, branch: Branch | None, params: Payload | None) -> None:
        """From now on, messages of the session of a subagent that is announced go to the chain that
        has announced it."""
        announced = announced_subagent(params)
        if announced is None or len(announced[1]) > MAX_AGENTS_ID:
            return
        session = announced[1]
        if branch is None:
            self._subagents[session] = None
        elif session not in self.sessions and not self.is_of_another(session, branch):
            self.sessions[session] = branch
            if (dropped := branch.subagents.add(session, None)) is not None:
                oldest, _ = dropped
                if oldest not in branch.sessions and self.sessions.get(oldest) is branch:
                    del self.sessions[oldest]


_IDS: Final = ("connectionId", "terminalId", "serverId", "acpId")
"""Ids of the client in a message. Those of MCP servers are `acpId` in the text of the RFD."""
_SPELLINGS: Final = frozenset(map(str.lower, _IDS))


def _read_ids(payload: Payload | None) -> dict[str, str]:
    """The ids in raw params or a raw result, by their names. Raises `ValueError`, or one of
    `DECODE_ERRORS`, also for a name that some peers would take for that of an id (`terminal_id`).
    """
    ids = {}
    for name, each in members_or_empty(payload or b"{}").items():
        if name in _IDS:
            if (id := decode_value(each, type=str | None)) is not None:
                ids[name] = id
        elif name.lower().replace("_", "") in _SPELLINGS:
            raise ValueError(f"{name} is no member of the protocol")
    return ids


def _ids_of(payload: Payload | None) -> dict[str, str]:
    try:
        return _read_ids(payload)
    except (ValueError, *DECODE_ERRORS):
        return {}


def _declared_servers(params: Payload | None) -> list[str]:
    """The ids of the MCP servers over ACP in the raw params of a session set-up."""
    try:
        servers = decode_value(members_or_empty(params or b"{}").get("mcpServers", b"null"))
    except (ValueError, *DECODE_ERRORS):
        return []
    listed = servers if isinstance(servers, list) else []
    declared = [each for each in listed if isinstance(each, dict) and each.get("type") == "acp"]
    ids = [each.get("serverId") or each.get("id") for each in declared]
    return [id for id in ids if isinstance(id, str) and len(id) <= MAX_AGENTS_ID]


def _text(value: Payload | None) -> str | None:
    """A raw JSON string; `None` for anything else."""
    try:
        return None if value is None else decode_value(value, type=str)
    except (ValueError, *DECODE_ERRORS):
        return None
