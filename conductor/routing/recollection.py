"""What a component was told, so that one that is started again can be told it again. Pure.

Kept is only what sets things up: the handshake, and the request that set up each session that is
still open, with the answers. For a proxy that includes what its successor answered, so that a
restarted proxy can go through its set-up without the agent seeing anything of it.
"""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from conductor.connection.calls import Call
from conductor.errors import RequestError
from conductor.limits import Limits
from conductor.messages import INVALID_REQUEST, Payload
from conductor.session_ids import session_of

__all__ = ["REMEMBERED", "SET_UPS", "Recollection", "SetUp"]

SET_UPS: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
"""The requests that set up a session."""
_ENDS: Final = frozenset({"session/close", "session/delete"})
REMEMBERED: Final = SET_UPS | _ENDS | {"initialize"}
"""The methods whose requests and answers a `Recollection` wants to see."""


class SetUp(msgspec.Struct, eq=False):
    """A request that set something up. Payloads that are not kept any more are `None`."""

    method: str
    session: str | None
    """The session that the request names, if any."""
    params: bytes | None
    result: bytes | None = b""
    """What the component answered."""
    inner_result: bytes | None = b""
    """What the component's successor answered to the request as the component passed it on."""

    @property
    def size(self) -> int:
        """Bytes of the payloads."""
        return sum(map(len, filter(None, (self.params, self.result, self.inner_result))))

    @property
    def is_kept(self) -> bool:
        """Whether the payloads are there: without them the session cannot be set up again."""
        return self.params is not None

    def drop_payloads(self) -> None:
        self.params = self.result = self.inner_result = None


@attrs.define(eq=False, repr=False)
class Recollection:
    """Of one component: its handshake, and its open sessions in the order of their set-up.

    Bounded: beyond `max_sessions` a set-up is refused, and beyond `max_session_log_bytes` the
    oldest sessions stay in the record by their ids alone, so that a restart can say that they are
    lost.
    """

    limits: Limits = attrs.field(factory=Limits)
    initialize: SetUp | None = None
    sessions: dict[str, SetUp] = attrs.field(factory=dict)
    has_servers: bool = False
    """Whether any set-up seems to have declared an MCP server over ACP."""
    size: int = attrs.field(default=0, init=False)
    """Bytes of the payloads of all set-ups, those that are not answered yet included."""
    _open: dict[Call, SetUp] = attrs.field(factory=dict, init=False)
    _kept: dict[SetUp, None] = attrs.field(factory=dict, init=False)
    """The set-ups of sessions whose payloads are kept, the oldest first."""
    _inner: list[tuple[str, bytes]] = attrs.field(factory=list, init=False)
    """What the successor answered to what is open: method and result."""

    def asked(self, call: Call, method: str, params: Payload | None) -> None:
        """The component gets a request of `REMEMBERED`. Raises `RequestError` over a limit."""
        payload = b"{}" if params is None else bytes(params)
        if method in SET_UPS and len(self.sessions) + len(self._open) >= self.limits.max_sessions:
            problem = f"more than {self.limits.max_sessions} sessions (max_sessions); close some"
            raise RequestError(INVALID_REQUEST, "Too many sessions", problem)
        if method == "initialize" and len(payload) > self.limits.max_session_log_bytes:
            limit = f"{self.limits.max_session_log_bytes} bytes (max_session_log_bytes)"
            problem = f"`initialize` of {len(payload)} bytes is over the limit of {limit}"
            raise RequestError(INVALID_REQUEST, "Invalid request", problem)
        if not self.has_servers and method in SET_UPS:
            self.has_servers = b'"acp"' in payload or b"\\u" in payload
        self._open[call] = set_up = SetUp(method, session_of(payload), payload)
        if method in SET_UPS:
            self._keep(set_up)

    def inner_answered(self, call: Call, result: Payload | None) -> None:
        """The component gets the answer to a request of `REMEMBERED` that it passed on."""
        if result is None or len(result) > self.limits.max_session_log_bytes:
            return
        if any(each.method == call.method for each in self._open.values()):
            self._inner.append((call.method, bytes(result)))
            del self._inner[: -len(self._open)]  # of a proxy that asks more than it is asked

    def answered(self, call: Call, result: Payload | None) -> None:
        """The component answered; without a result it refused."""
        set_up = self._open.pop(call, None)
        if set_up is None:
            return
        session = session_of(result) or set_up.session
        inner_result = self._take_inner(set_up.method, session)
        self._drop(set_up)
        if result is None:
            return
        if set_up.is_kept:
            set_up.result, set_up.inner_result = bytes(result), inner_result
        if set_up.method == "initialize":
            self.initialize = set_up
        elif set_up.method not in SET_UPS:
            self.forget(set_up.session or "")
        elif session is not None:
            self.forget(session)
            self.sessions[session] = set_up
            self._keep(set_up)

    def forget_open(self) -> None:
        """Whoever was asked is gone and will not answer; its initialization may be tried again."""
        for call, each in list(self._open.items()):
            if each.method != "initialize":
                self._drop(each)
                del self._open[call]
        self._inner.clear()

    def _take_inner(self, method: str, session: str | None) -> bytes:
        """The successor's answer to the same request: sessions may be set up in any order."""
        found = [each for each in self._inner if each[0] == method]
        if not found:
            return b""
        same = [each for each in found if session is not None and session_of(each[1]) == session]
        taken = (same or found)[0]
        self._inner.remove(taken)
        if not any(each.method == method for each in self._open.values()):
            self._inner = [each for each in self._inner if each[0] != method]
        return taken[1]

    def forget(self, session: str) -> None:
        """The session is over, or lost."""
        set_up = self.sessions.pop(session, None)
        if set_up is not None:
            self._drop(set_up)

    def _keep(self, set_up: SetUp) -> None:
        """Count the payloads, and drop the oldest while there are too many bytes."""
        if not set_up.is_kept:
            return
        self._kept[set_up] = None
        self.size += set_up.size
        while self.size > self.limits.max_session_log_bytes:
            oldest = next(iter(self._kept))
            self._drop(oldest)
            oldest.drop_payloads()

    def _drop(self, set_up: SetUp) -> None:
        """Count the payloads no more."""
        if set_up in self._kept:
            del self._kept[set_up]
            self.size -= set_up.size
