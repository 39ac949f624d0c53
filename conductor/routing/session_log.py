"""What a component was told, so that one that is started again can be told it again. Pure.

Kept is only what sets things up: the handshake, and the request that set up each session that is
still open, with the answers. For a proxy that includes what its successor answered, so that a
restarted proxy can go through its set-up without the agent seeing anything of it.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from conductor.acp import session_id_of
from conductor.errors import RequestError
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INVALID_REQUEST, Payload
from conductor.limits import Limits

__all__ = ["LOGGED_METHODS", "SESSION_SETUP_METHODS", "SessionLog", "SetupRecord"]

SESSION_SETUP_METHODS: Final = frozenset(
    {"session/new", "session/load", "session/resume", "session/fork"}
)
"""The requests that set up a session."""
_SESSION_END_METHODS: Final = frozenset({"session/close", "session/delete"})
LOGGED_METHODS: Final = SESSION_SETUP_METHODS | _SESSION_END_METHODS | {"initialize"}
"""The methods whose requests and answers a `SessionLog` wants to see."""


class SetupRecord(msgspec.Struct, eq=False):
    """A request that set something up. Payloads that are not kept any more are `None`."""

    method: str
    session: str | None
    """The session that the request names, if any."""
    params: bytes | None
    result: bytes | None = b""
    """What the component answered."""
    successor_result: bytes | None = b""
    """What the component's successor answered to the request as the component passed it on."""

    @property
    def size(self) -> int:
        """Bytes of the payloads."""
        return sum(map(len, filter(None, (self.params, self.result, self.successor_result))))

    @property
    def has_payloads(self) -> bool:
        """Whether the payloads are there: without them the session cannot be set up again."""
        return self.params is not None

    def drop_payloads(self) -> None:
        self.params = self.result = self.successor_result = None


@attrs.define(eq=False, repr=False)
class SessionLog:
    """Of one component: its handshake, and its open sessions in the order of their set-up.

    Bounded: beyond `max_sessions` a set-up is refused, and beyond `max_session_log_bytes` the
    oldest sessions stay in the record by their ids alone, so that a restart can say that they are
    lost.
    """

    limits: Limits = attrs.field(factory=Limits)
    initialize: SetupRecord | None = None
    sessions: dict[str, SetupRecord] = attrs.field(factory=dict)
    has_servers: bool = False
    """Whether any set-up seems to have declared an MCP server over ACP."""
    size: int = attrs.field(default=0, init=False)
    """Bytes of the payloads of all set-ups, those that are not answered yet included."""
    _unanswered: dict[InFlightRequest, SetupRecord] = attrs.field(factory=dict, init=False)
    _counted: dict[SetupRecord, None] = attrs.field(factory=dict, init=False)
    """The set-ups of sessions whose payloads are kept, the oldest first."""
    _successor_results: list[tuple[str, bytes]] = attrs.field(factory=list, init=False)
    """What the successor answered to what is open: method and result."""

    def log_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """The component gets a request of `LOGGED_METHODS`. Raises `RequestError` over a limit."""
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
        self._unanswered[call] = record = SetupRecord(method, session_id_of(payload), payload)
        if method in SESSION_SETUP_METHODS:
            self._count(record)

    def log_successor_response(self, call: InFlightRequest, result: Payload | None) -> None:
        """The component gets the answer to a request of `LOGGED_METHODS` that it passed on."""
        if result is None or len(result) > self.limits.max_session_log_bytes:
            return
        if any(each.method == call.method for each in self._unanswered.values()):
            self._successor_results.append((call.method, bytes(result)))
            del self._successor_results[
                : -len(self._unanswered)
            ]  # of a proxy that asks more than it is asked

    def log_response(self, call: InFlightRequest, result: Payload | None) -> None:
        """The component answered; without a result it refused."""
        record = self._unanswered.pop(call, None)
        if record is None:
            return
        session = session_id_of(result) or record.session
        successor_result = self._take_successor_result(record.method, session)
        self._uncount(record)
        if result is None:
            return
        if record.has_payloads:
            record.result, record.successor_result = bytes(result), successor_result
        if record.method == "initialize":
            self.initialize = record
        elif record.method not in SESSION_SETUP_METHODS:
            self.forget(record.session or "")
        elif session is not None:
            self.forget(session)
            self.sessions[session] = record
            self._count(record)

    def drop_unanswered(self) -> None:
        """Whoever was asked is gone and will not answer; its initialization may be tried again."""
        for call, each in list(self._unanswered.items()):
            if each.method != "initialize":
                self._uncount(each)
                del self._unanswered[call]
        self._successor_results.clear()

    def _take_successor_result(self, method: str, session: str | None) -> bytes:
        """The successor's answer to the same request: sessions may be set up in any order."""
        found = [each for each in self._successor_results if each[0] == method]
        if not found:
            return b""
        same = [each for each in found if session is not None and session_id_of(each[1]) == session]
        taken = (same or found)[0]
        self._successor_results.remove(taken)
        if not any(each.method == method for each in self._unanswered.values()):
            self._successor_results = [
                each for each in self._successor_results if each[0] != method
            ]
        return taken[1]

    def forget(self, session: str) -> None:
        """The session is over, or lost."""
        record = self.sessions.pop(session, None)
        if record is not None:
            self._uncount(record)

    def _count(self, record: SetupRecord) -> None:
        """Count the payloads, and drop the oldest while there are too many bytes."""
        if not record.has_payloads:
            return
        self._counted[record] = None
        self.size += record.size
        while self.size > self.limits.max_session_log_bytes:
            oldest = next(iter(self._counted))
            self._uncount(oldest)
            oldest.drop_payloads()

    def _uncount(self, record: SetupRecord) -> None:
        """Count the payloads no more."""
        if record in self._counted:
            del self._counted[record]
            self.size -= record.size
