"""Route the messages of one client to several chains, by session. Pure.

    client ⇄ SessionRouter ⇄ the first chain, or a `Branch` for each further one

The router takes the place of the first component as the neighbour of the client's port. A message
of a session goes to the chain that the session was set up in, or in which the agent has announced
it as that of a subagent. Without a session: messages of an MCP server over ACP go to the chain that
has connected to it; `authenticate` to the chain that has required it last; a `logout` also to the
others; everything else to the first chain. Ids belong to the connection of each hop, so those of
several chains do not clash.

A chain speaks for its own sessions, terminals and connections to MCP servers: what it sends for
those of another one, past the `permissions` there, is dropped or refused, and logged. Sessions that
no chain has are not checked: agents send updates before the response that names a session, and
have subagents that they do not announce.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import msgspec

from conductor.acp import (
    LOGIN_METHODS,
    LOGOUT_METHODS,
    MAX_AGENTS_ID,
    MCP_METHODS,
    PROMPT,
    SESSION_CREATING_METHODS,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    announced_subagent,
    message_names,
    named_sessions,
    session_id_of,
)
from conductor.bounded_dict import BoundedDict
from conductor.chain.response_watch import OwnRequest, ResponseWatch
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import RequestError
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decode_with_surrogates, members_or_empty
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Payload,
    encode_error,
    error_to_exception,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.link import Link
from conductor.routing.port import Port, connect_ports

__all__ = ["Branch", "SessionRouter"]

_SESSION_ID_TAKEN: Final = encode_error(
    INTERNAL_ERROR,
    "The agent gave the new session the id of one that another process of it has given; sessions "
    "of several projects need an agent whose ids are unique",
)
_NOT_ITS_OWN: Final = encode_error(INVALID_PARAMS, "Invalid params", "it belongs to another chain")
_MAX_SUBAGENTS: Final = 1000
"""Sessions of subagents of one chain that are remembered; the oldest are forgotten."""
_MAX_IDS: Final = 1000
"""Servers, and terminals, of one chain that are remembered; the oldest are forgotten."""


class Branch(Port):
    """The end of a further chain toward the client; its neighbour is the port of its link."""

    __slots__ = (
        "_router",
        "link",
        "on_idle",
        "opening",
        "servers",
        "sessions",
        "subagents",
        "terminals",
    )

    def __init__(self, router: SessionRouter, link: Link, on_idle: Callable[[], None]) -> None:
        super().__init__()
        self._router = router
        self.link: Link = link
        self.on_idle: Callable[[], None] = on_idle
        """Called when its last session has ended."""
        self.sessions: set[str] = set()
        self.subagents: BoundedDict[str, None] = BoundedDict(_MAX_SUBAGENTS)
        """Sessions of subagents; the chain ends without them."""
        self.servers: BoundedDict[str, None] = BoundedDict(_MAX_IDS)
        """MCP servers over ACP that the client has declared for its sessions."""
        self.terminals: BoundedDict[str, None] = BoundedDict(_MAX_IDS)
        """Terminals that the client has created for it."""
        self.opening: int = 0
        """Session set-ups under way."""
        connect_ports(self, link.plain)

    def open(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Set up a session in this chain."""
        self.opening += 1
        for server in _declared_servers(params):
            self.servers[server] = None
        session = None if method in SESSION_CREATING_METHODS else session_id_of(params)
        if session is not None:
            self._router.assign(session, self)  # the client may use it before the response
        ResponseWatch(call, lambda result, error: self._opened(session, result, error))
        self.link.plain.request(call, method, params)

    def _opened(self, session: str | None, result: Payload | None, error: Payload | None) -> None:
        self.opening -= 1
        if result is not None:
            session = session or session_id_of(result)
            if session is not None:
                self._router.assign(session, self)
        else:
            if session is not None:
                self._router.release(session, self)
            self._router.note_refusal(self, error)
        self.check_idle()

    def check_idle(self) -> None:
        if not self.sessions and not self.opening:
            self.on_idle()

    # -- from the chain ----------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self._router.is_foreign(self, method, params):
            self.neighbour.respond(call, None, _NOT_ITS_OWN)
        else:
            self._router.request_from(self, call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        if not self._router.is_foreign(self, method, params):
            self._note_subagent(params)
            self._router.client.notify(method, params)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        if (own := self._router.own_part(self, notifications)) is None:
            return
        if own.contains(b"subagent_update"):
            for params in own.params:
                self._note_subagent(params)
        self._router.client.notify_batch(own)

    def _note_subagent(self, params: Payload | None) -> None:
        if (announced := announced_subagent(params)) is not None:
            self._router.assign_subagent(announced[1], self)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if isinstance(call.source, OwnRequest):
            call.source.respond(call, result, error)
            return
        if call.method in SESSION_CREATING_METHODS and self._router.is_taken(result, self):
            result, error = None, _SESSION_ID_TAKEN
        self._router.client.respond(call, result, error)

    def backlog(self) -> int:
        return self._router.client.backlog()


class SessionRouter(Port):
    """The neighbour of the client's port, between the client and all its chains.

    `first_client` is the client's port as the first chain sees it: traced, if that chain is.
    `client` is the same port without a trace; messages of the other chains are in their own traces.
    `open_sessions` are all open sessions of the client; `report` gets the chain that has sent a
    message for what belongs to another one, and what names the message.
    """

    __slots__ = (
        "_asked",
        "_login",
        "_mcp",
        "_open_sessions",
        "_opening",
        "_report",
        "_subagents",
        "branches",
        "client",
        "first",
        "sessions",
    )

    def __init__(
        self,
        first_client: Port,
        client: Port,
        report: Callable[[str, dict[str, object]], None],
        open_sessions: Container[str] = (),
    ) -> None:
        super().__init__()
        self._report = report
        self._open_sessions = open_sessions
        self.client: Port = client
        self.sessions: dict[str, Branch] = {}
        self.branches: list[Branch] = []
        self.first: _FirstChain = _FirstChain(self, first_client)
        self._asked: dict[InFlightRequest, Branch] = {}
        """Requests of further chains that the client has not answered."""
        self._mcp: dict[str, Branch] = {}
        """Chains by the id of their connection to an MCP server over ACP."""
        self._opening: set[str] = set()
        """Sessions that the first chain is loading or resuming."""
        self._subagents: BoundedDict[str, None] = BoundedDict(_MAX_SUBAGENTS)
        """Sessions of subagents of the first chain."""
        self._login: Branch | None = None
        connect_ports(self.first, first_client.neighbour)
        connect_ports(first_client, self)

    def is_taken(self, result: Payload | None, branch: Branch | None) -> bool:
        """Whether the new session in a raw result has the id of one in another chain. That a chain
        has announced it as a subagent's does not count: the id could be guessed."""
        session = session_id_of(result)
        if session is None:
            return False
        owner = self.sessions.get(session)
        if owner is not None and owner is not branch and session not in owner.sessions:
            self.release(session, owner)
            owner = None
        if owner is None and branch is not None:
            return session in self._open_sessions
        return owner is not branch

    # -- what a chain may speak for ----------------------------------------------------------------

    def is_foreign(self, branch: Branch | None, method: str, params: Payload | None) -> bool:
        """Whether a message to the client is for what belongs to another chain than its own, which
        is `branch`, or the first; it is logged then. So is one that two parsers could read
        differently."""
        try:
            is_foreign = self._names_foreign_session(branch, params)
            if not is_foreign and (method in MCP_METHODS or method.startswith("terminal/")):
                is_foreign = self._names_foreign_id(branch, method, _read_ids(params))
            problem = {}
        except (ValueError, *DECODE_ERRORS) as exc:
            is_foreign = bytes(params or b"").lstrip().startswith(b"{")
            problem = {"problem": str(exc)}
        if is_foreign:
            names = message_names(method, params) | problem
            chain = "the first" if branch is None else branch.link.name
            self._report(chain, names)
        return is_foreign

    def own_part(
        self, branch: Branch | None, notifications: NotificationBatch
    ) -> NotificationBatch | None:
        """The notifications that are not foreign; `None` if all are."""
        method = notifications.method
        own = [each for each in notifications.params if not self.is_foreign(branch, method, each)]
        if len(own) == notifications.count:
            return notifications
        return NotificationBatch(method, own) if own else None

    def _names_foreign_session(self, branch: Branch | None, params: Payload | None) -> bool:
        return any(self._is_of_another(each, branch) for each in named_sessions(params))

    def _is_of_another(self, session: str, branch: Branch | None) -> bool:
        owner = self.sessions.get(session)
        if owner is not None or branch is None:
            return owner is not branch
        return any(
            session in each for each in (self._open_sessions, self._opening, self._subagents)
        )

    def _names_foreign_id(self, branch: Branch | None, method: str, ids: _Ids) -> bool:
        """Ids of the first chain may be from before the first further chain: it may use each that
        no further chain has, and a further chain only its own."""
        connection, terminal = ids.connectionId, ids.terminalId
        if branch is None:
            return connection in self._mcp or any(
                terminal in each.terminals for each in self.branches
            )
        servers = (ids.serverId, ids.acpId) if method in MCP_METHODS else ()
        return (
            (connection is not None and self._mcp.get(connection) is not branch)
            or (terminal is not None and terminal not in branch.terminals)
            or any(each is not None and each not in branch.servers for each in servers)
        )

    def assign(self, session: str, branch: Branch) -> None:
        """From now on, messages of this session go to this chain."""
        before = self.sessions.get(session)
        self.sessions[session] = branch
        branch.sessions.add(session)
        if before is not None and before is not branch:
            before.sessions.discard(session)

    def note_subagent_of_first(self, params: Payload | None) -> None:
        announced = announced_subagent(params)
        if announced is not None and len(announced[1]) <= MAX_AGENTS_ID:
            self._subagents[announced[1]] = None

    def assign_subagent(self, session: str, branch: Branch) -> None:
        """From now on, messages of this session of a subagent go to this chain."""
        is_taken = session in self.sessions or self._is_of_another(session, branch)
        if is_taken or len(session) > MAX_AGENTS_ID:
            return
        self.sessions[session] = branch
        if (dropped := branch.subagents.add(session, None)) is not None:
            oldest, _ = dropped
            if oldest not in branch.sessions and self.sessions.get(oldest) is branch:
                del self.sessions[oldest]

    def release(self, session: str, branch: Branch) -> None:
        """The session has ended."""
        branch.sessions.discard(session)
        if self.sessions.get(session) is branch:
            del self.sessions[session]

    def forget(self, session: str) -> None:
        """The session is set up anew, in the first chain."""
        if (branch := self.sessions.get(session)) is not None:
            self.release(session, branch)

    def remove(self, branch: Branch) -> None:
        """The chain has ended. Requests for its sessions are answered by its link."""
        if branch in self.branches:
            self.branches.remove(branch)
        for session in branch.subagents:
            self.sessions.pop(session, None)
        self._mcp = {name: owner for name, owner in self._mcp.items() if owner is not branch}
        if self._login is branch:
            self._login = None

    def note_refusal(self, branch: Branch | None, error: Payload | None) -> None:
        """A chain has answered a session set-up; with this error, it may require a login."""
        failure = None if error is None else error_to_exception(error)
        if isinstance(failure, RequestError) and failure.code == AUTHENTICATION_REQUIRED:
            self._login = branch

    # -- from the client ---------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        branch = self._branch_for(call, method, params)
        if branch is None:
            if method in SESSION_SETUP_METHODS:
                self._open_in_first(call, method, params)
            self.first.neighbour.request(call, method, params)
            if method in LOGOUT_METHODS:
                self._log_out(method, params)
            return
        if method in SESSION_SETUP_METHODS:
            branch.open(call, method, params)
            return
        if method in SESSION_END_METHODS:
            ResponseWatch(call, after=lambda result, _: self._ended(params, branch, result))
        branch.link.plain.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        branch = self._branch_for(None, method, params)
        port = self.first.neighbour if branch is None else branch.link.plain
        port.notify(method, params)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        branch = self._asked.pop(call, None)
        if branch is None:
            self.first.neighbour.respond(call, result, error)
            return
        ids = _ids_of(result) if call.method in ("mcp/connect", "terminal/create") else _Ids()
        if ids.connectionId is not None:
            self._mcp[ids.connectionId] = branch
        if ids.terminalId is not None:
            branch.terminals[ids.terminalId] = None
        branch.link.plain.respond(call, result, error)

    def backlog(self) -> int:
        return self.first.neighbour.backlog()

    def unread(self) -> int:
        return self.first.neighbour.unread()

    def _branch_for(
        self, call: InFlightRequest | None, method: str, params: Payload | None
    ) -> Branch | None:
        """The further chain that a message is for; `None` for the first chain."""
        if method in MCP_METHODS:
            return self._mcp.get(_ids_of(params).connectionId or "")
        if method in LOGIN_METHODS:
            return self._login
        known = call.session if call is not None and method == PROMPT else None
        return self.sessions.get(known or session_id_of(params) or "")

    def _open_in_first(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        session = session_id_of(params)
        if session is not None and method not in SESSION_CREATING_METHODS:
            self._opening.add(session)

        def opened(_: Payload | None, error: Payload | None) -> None:
            self._opening.discard(session or "")
            self.note_refusal(None, error)

        ResponseWatch(call, after=opened)

    def _ended(self, params: Payload | None, branch: Branch, result: Payload | None) -> None:
        session = session_id_of(params)
        if result is not None and session is not None:
            self.release(session, branch)
            branch.check_idle()

    def _log_out(self, method: str, params: Payload | None) -> None:
        for branch in self.branches:
            own = InFlightRequest(method, OwnRequest(lambda result, error: None))
            branch.link.plain.request(own, method, params)

    # -- from further chains -----------------------------------------------------------------------

    def request_from(
        self, branch: Branch, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        """A request of a further chain to the client."""
        self._asked[call] = branch
        if method == "mcp/disconnect":
            self._mcp.pop(_ids_of(params).connectionId or "", None)
        self.client.request(call, method, params)


class _FirstChain(Port):
    """The end of the first chain toward the client; its neighbour is the first component."""

    __slots__ = ("_client", "_router")

    def __init__(self, router: SessionRouter, client: Port) -> None:
        super().__init__()
        self._router = router
        self._client = client

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self._router.is_foreign(None, method, params):
            self.neighbour.respond(call, None, _NOT_ITS_OWN)
        else:
            self._client.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        if not self._router.is_foreign(None, method, params):
            self._router.note_subagent_of_first(params)
            self._client.notify(method, params)

    def notify_batch(self, notifications: NotificationBatch) -> None:
        if (own := self._router.own_part(None, notifications)) is None:
            return
        if own.contains(b"subagent_update"):
            for params in own.params:
                self._router.note_subagent_of_first(params)
        self._client.notify_batch(own)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        if call.method in SESSION_CREATING_METHODS and self._router.is_taken(result, None):
            result, error = None, _SESSION_ID_TAKEN
        self._client.respond(call, result, error)

    def backlog(self) -> int:
        return self._client.backlog()

    def unread(self) -> int:
        return self._client.unread()


class _Ids(msgspec.Struct, gc=False):
    """Ids of the client in a message. Those of MCP servers are `acpId` in the text of the RFD."""

    connectionId: str | None = None
    terminalId: str | None = None
    serverId: str | None = None
    acpId: str | None = None


_IDS: Final = frozenset(_Ids.__struct_fields__)
_SPELLINGS: Final = frozenset(map(str.lower, _IDS))


class _Server(msgspec.Struct, gc=False):
    type: Any = None
    serverId: Any = None
    id: Any = None


class _Setup(msgspec.Struct, gc=False):
    mcpServers: list[_Server] = []


_decode_setup: Final = msgspec.json.Decoder(_Setup).decode


def _read_ids(payload: Payload | None) -> _Ids:
    """Read the ids in raw params or a raw result. Raises `ValueError`, or one of `DECODE_ERRORS`,
    also for a name that some peers would take for that of an id (`terminal_id`)."""
    members = members_or_empty(payload or b"{}")
    for name in members:
        if name not in _IDS and name.lower().replace("_", "") in _SPELLINGS:
            raise ValueError(f"{name} is no member of the protocol")
    ids = {name: decode_value(each) for name, each in members.items() if name in _IDS}
    return msgspec.convert(ids, _Ids)


def _ids_of(payload: Payload | None) -> _Ids:
    try:
        return _read_ids(payload)
    except (ValueError, *DECODE_ERRORS):
        return _Ids()


def _declared_servers(params: Payload | None) -> list[str]:
    """The ids of the MCP servers over ACP in the raw params of a session set-up."""
    try:
        servers = decode_with_surrogates(params or b"{}", _decode_setup).mcpServers
    except ValueError:
        return []
    ids = [each.serverId or each.id for each in servers if each.type == "acp"]
    return [id for id in ids if isinstance(id, str) and len(id) <= MAX_AGENTS_ID]
