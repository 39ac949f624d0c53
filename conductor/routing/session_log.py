"""Bounded log of a component's handshake and session set-ups, for the replay after a restart. Pure.

Recorded are `initialize`, the last login (its params up to 64 KiB) and, for each open session, the
request that set it up, with their results. For a proxy, the results of its successor are recorded
too: a restarted proxy repeats its set-up against them, without a message to the agent. Of an agent,
mode, model and options that were set are recorded, too (`session_settings`). Prompts and updates
are not recorded. The stages of a link that see these messages are `LoggedSetups` and
`SuccessorSetups`; `LostSessions` refuses the sessions that a restarted agent could not restore.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from conductor.acp import (
    LOGIN_METHODS,
    LOGOUT_METHODS,
    SESSION_CREATING_METHODS,
    SESSION_END_METHODS,
    SESSION_SETUP_METHODS,
    session_id_of,
)
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Payload,
    RawMember,
    encode_error,
    exception_to_error,
)
from conductor.limits import Limits
from conductor.routing.stage import EVERY, ForwardRequest, ForwardResponse, Stage

__all__ = [
    "LOGGED_METHODS",
    "LoggedSetups",
    "LostSessions",
    "SessionLog",
    "SetupRecord",
    "SuccessorSetups",
    "forwarded_names",
]

LOGGED_METHODS: Final = (
    SESSION_SETUP_METHODS | SESSION_END_METHODS | LOGIN_METHODS | LOGOUT_METHODS | {"initialize"}
)
"""Methods for which `SessionLog` needs the requests and responses."""
_RESUMPTIONS: Final = ("session/load", "session/resume")
_MAX_LOGIN_BYTES: Final = 65536
"""Larger params of a login are not kept: it cannot be repeated."""


def forwarded_names(method: str) -> tuple[str, ...]:
    """The methods with which a proxy may forward a request: between two versions of the protocol, a
    session that is loaded is resumed."""
    return _RESUMPTIONS if method in _RESUMPTIONS else (method,)


class SetupRecord(msgspec.Struct, eq=False):
    """A recorded request with its results. Dropped payloads are `None`."""

    method: str
    session: str | None
    """Session id in the params, if any."""
    params: bytes | None
    result: bytes | None = b""
    """Raw result of the component; empty before its response."""
    successor_result: bytes | None = b""
    """Raw result of the component's successor to the forwarded request."""
    settings: dict[tuple[str, str], bytes] = msgspec.field(default_factory=dict)
    """Raw params of the requests that set mode, model and options, the last one last; by their
    method, and the id of the option (empty for mode and model)."""

    is_prompted: bool = False
    """Whether the session was sent a prompt since its set-up."""

    @property
    def has_conversation(self) -> bool:
        """Whether the agent may know of a conversation."""
        return self.is_prompted or self.method != "session/new"

    @property
    def size(self) -> int:
        """Total size of the payloads in bytes."""
        payloads = (self.params, self.result, self.successor_result, *self.settings.values())
        return sum(map(len, filter(None, payloads)))

    @property
    def has_payloads(self) -> bool:
        """Whether the payloads are kept; without them the session cannot be replayed."""
        return self.params is not None

    def drop_payloads(self) -> None:
        self.params = self.result = self.successor_result = None
        self.settings.clear()


class SessionLog(msgspec.Struct, eq=False, weakref=True):
    """Handshake of one component, and its open sessions in the order of their set-up.

    Bounded by `limits`: beyond `max_sessions`, a set-up is refused; beyond `max_session_log_bytes`,
    payloads are dropped, first those of the session with the oldest set-up or last setting. The ids
    stay, so that a restart reports them as lost.
    """

    limits: Limits = msgspec.field(default_factory=Limits)
    initialize: SetupRecord | None = None
    login: SetupRecord | None = None
    """The last successful login, until a logout."""
    sessions: dict[str, SetupRecord] = msgspec.field(default_factory=dict)
    has_servers: bool = False
    """Whether a set-up may have declared an MCP server over ACP; false positives are possible."""
    size: int = 0
    """Total bytes of the payloads of all set-ups, unanswered ones included."""
    _unanswered: dict[InFlightRequest, SetupRecord] = msgspec.field(default_factory=dict)
    _counted: dict[SetupRecord, None] = msgspec.field(default_factory=dict)
    """Session set-ups with payloads, the oldest first."""
    _successor_results: list[tuple[str, bytes]] = msgspec.field(default_factory=list)
    """Method and result of the successor's responses to requests that are still unanswered."""

    def log_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Record a request of `LOGGED_METHODS` to the component. Raises `RequestError` over a
        limit."""
        payload = b"{}" if params is None else bytes(params)
        if (
            method in SESSION_SETUP_METHODS
            and len(self.sessions) + len(self._unanswered) >= self.limits.max_sessions
        ):
            problem = f"more than {self.limits.max_sessions} sessions (max_sessions); close some"
            raise RequestError(INVALID_REQUEST, "Too many sessions", problem)
        if method == "initialize" and len(payload) > self.limits.max_session_log_bytes:
            limit = f"{self.limits.max_session_log_bytes} bytes (max_session_log_bytes)"
            problem = f"`initialize` of {len(payload)} bytes is over the limit of {limit}"
            raise RequestError(INVALID_REQUEST, "Invalid request", problem)
        if not self.has_servers and method in SESSION_SETUP_METHODS:
            self.has_servers = b'"acp"' in payload or b"\\u" in payload
        is_kept = method not in LOGIN_METHODS or len(payload) <= _MAX_LOGIN_BYTES
        params_kept = payload if is_kept else None
        self._unanswered[call] = record = SetupRecord(method, session_id_of(payload), params_kept)
        if method in SESSION_SETUP_METHODS:
            self._count(record)

    def log_successor_response(self, call: InFlightRequest, result: RawMember) -> None:
        """Record the successor's response to a request of `LOGGED_METHODS` from the component."""
        if result is None or len(result) > self.limits.max_session_log_bytes:
            return
        names = forwarded_names(call.method)
        if any(each.method in names for each in self._unanswered.values()):
            self._successor_results.append((call.method, bytes(result)))
            # Bounds the list for a proxy that sends more requests than it receives.
            del self._successor_results[: -len(self._unanswered)]

    def log_response(self, call: InFlightRequest, result: RawMember) -> None:
        """Record the component's response; `result` is `None` for an error."""
        record = self._unanswered.pop(call, None)
        if record is None:
            return
        creates = record.method in SESSION_CREATING_METHODS
        session = (None if creates else record.session) or session_id_of(result) or record.session
        successor_result = self._take_successor_result(record.method, session)
        self._uncount(record)
        if result is None:
            return
        if record.has_payloads:
            record.result, record.successor_result = bytes(result), successor_result
        if record.method == "initialize":
            self.initialize = record
        elif record.method in LOGIN_METHODS:
            self.login = record
        elif record.method in LOGOUT_METHODS:
            self.login = None
        elif record.method not in SESSION_SETUP_METHODS:
            self.forget(record.session or "")
        elif session is not None:
            self.forget(session)
            self.sessions[session] = record
            self._count(record)

    def log_setting(self, session: str, key: tuple[str, str], params: bytes | None) -> None:
        """Record a setting of an open session as the last one; `None` removes it."""
        record = self.sessions.get(session)
        if record is None or not record.has_payloads:
            return
        self._uncount(record)
        record.settings.pop(key, None)
        if params is not None:
            record.settings[key] = params
        self._count(record)

    def drop_unanswered(self) -> None:
        """The component is gone: forget unanswered requests, but not `initialize`, which may be
        retried."""
        for call, each in list(self._unanswered.items()):
            if each.method != "initialize":
                self._uncount(each)
                del self._unanswered[call]
        self._successor_results.clear()

    def _take_successor_result(self, method: str, session: str | None) -> bytes:
        """Take the successor's result for the same session: set-ups may complete in any order."""
        names = forwarded_names(method)
        found = [each for each in self._successor_results if each[0] in names]
        if not found:
            return b""
        same = [each for each in found if session is not None and session_id_of(each[1]) == session]
        taken = (same or found)[0]
        self._successor_results.remove(taken)
        if not any(each.method in names for each in self._unanswered.values()):
            self._successor_results = [
                each for each in self._successor_results if each[0] not in names
            ]
        return taken[1]

    def forget(self, session: str) -> None:
        """Remove a session that was closed or lost."""
        record = self.sessions.pop(session, None)
        if record is not None:
            self._uncount(record)

    def _count(self, record: SetupRecord) -> None:
        """Add the payloads to `size`; drop the oldest while the limit is exceeded."""
        if not record.has_payloads:
            return
        self._counted[record] = None
        self.size += record.size
        while self.size > self.limits.max_session_log_bytes:
            oldest = next(iter(self._counted))
            self._uncount(oldest)
            oldest.drop_payloads()

    def _uncount(self, record: SetupRecord) -> None:
        """Subtract the payloads from `size`."""
        if record in self._counted:
            del self._counted[record]
            self.size -= record.size


class LoggedSetups(Stage):
    """Logs the set-ups that a component gets, or that a client or parent conductor sends
    (`is_sender`), and refuses those over a limit."""

    __slots__ = ("_is_sender", "_log", "received", "sent")

    name = "session log"

    def __init__(
        self, log: SessionLog, methods: frozenset[str] = LOGGED_METHODS, *, is_sender: bool = False
    ) -> None:
        self._log = log
        self._is_sender = is_sender
        self.sent: frozenset[str] = frozenset() if is_sender else methods
        self.received: frozenset[str] = methods - {"initialize"} if is_sender else frozenset()

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        try:
            self._log.log_request(call, method, params)
        except RequestError as exc:
            if self._is_sender:
                call.source.respond(call, None, exception_to_error(exc))
            else:
                self.port.answer(self, call, None, exception_to_error(exc))
        else:
            forward(call, method, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        self._log.log_response(call, result)
        forward(call, result, error)

    receive_request = send_request
    send_response = receive_response


class SuccessorSetups(Stage):
    """Logs the successor's responses to the set-ups that a proxy has forwarded."""

    __slots__ = ("_log",)

    name = "session log"
    received: frozenset[str] = LOGGED_METHODS

    def __init__(self, log: SessionLog) -> None:
        self._log = log

    def send_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
    ) -> None:
        self._log.log_successor_response(call, result)
        forward(call, result, error)


class LostSessions(Stage):
    """Refuses the first request for each session that `agent` has lost, then removes itself.

    `known` are the sessions that it has now; `needs_login`: it has lost them with its login.
    """

    __slots__ = ("_agent", "_known", "_lost", "_needs_login")

    name = "lost sessions"
    sent: frozenset[str] = EVERY

    def __init__(
        self, agent: str, lost: Iterable[str], known: SessionLog, *, needs_login: bool
    ) -> None:
        self._agent = agent
        self._lost = set(lost)
        self._known = known
        self._needs_login = needs_login

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        session = session_id_of(params)
        if session not in self._lost:
            forward(call, method, params)
            return
        self._lost.discard(session)
        if method in SESSION_SETUP_METHODS or session in self._known.sessions:
            forward(call, method, params)  # it is being set up, or a new session has the same id
        else:
            self.port.answer(self, call, None, self._refusal(session))
        if not self._lost:
            self.port.remove(self)

    def _refusal(self, session: str) -> bytes:
        code = INTERNAL_ERROR
        message = f"{self._agent} was restarted and has lost "
        if self._needs_login:
            code = AUTHENTICATION_REQUIRED
            message += "its login: log in again, then load this session, or start a new one"
        else:
            message += "this session; start a new one, or load it"
        return encode_error(code, message, {"component": self._agent, "sessionId": session})
