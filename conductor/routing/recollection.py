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
from conductor.messages import Payload
from conductor.session_ids import session_of

__all__ = ["REMEMBERED", "SET_UPS", "Recollection", "SetUp"]

SET_UPS: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
"""The requests that set up a session."""
_ENDS: Final = frozenset({"session/close", "session/delete"})
REMEMBERED: Final = SET_UPS | _ENDS | {"initialize"}
"""The methods whose requests and answers a `Recollection` wants to see."""


class SetUp(msgspec.Struct, eq=False):
    """A request that set something up."""

    method: str
    params: bytes
    result: bytes = b""
    """What the component answered."""
    inner_result: bytes = b""
    """What the component's successor answered to the request as the component passed it on."""


@attrs.define(eq=False, repr=False)
class Recollection:
    """Of one component: its handshake, and its open sessions in the order of their set-up."""

    initialize: SetUp | None = None
    sessions: dict[str, SetUp] = attrs.field(factory=dict)
    has_servers: bool = False
    """Whether any set-up seems to have declared an MCP server over ACP."""
    _open: dict[Call, SetUp] = attrs.field(factory=dict, init=False)
    _inner: list[tuple[str, bytes]] = attrs.field(factory=list, init=False)
    """What the successor answered to what is open: method and result."""

    def asked(self, call: Call, method: str, params: Payload | None) -> None:
        """The component gets a request of `REMEMBERED`."""
        self._open[call] = set_up = SetUp(method, b"{}" if params is None else bytes(params))
        if not self.has_servers and method in SET_UPS:
            self.has_servers = b'"acp"' in set_up.params or b"\\u" in set_up.params

    def inner_answered(self, call: Call, result: Payload | None) -> None:
        """The component gets the answer to a request of `REMEMBERED` that it passed on."""
        if result is not None and any(each.method == call.method for each in self._open.values()):
            self._inner.append((call.method, bytes(result)))

    def answered(self, call: Call, result: Payload | None) -> None:
        """The component answered; without a result it refused."""
        set_up = self._open.pop(call, None)
        if set_up is None:
            return
        session = session_of(result) or session_of(set_up.params)
        set_up.inner_result = self._take_inner(set_up.method, session)
        if result is None:
            return
        set_up.result = bytes(result)
        if set_up.method == "initialize":
            self.initialize = set_up
        elif set_up.method in SET_UPS:
            if session is not None:
                self.sessions[session] = set_up
        else:
            self.sessions.pop(session_of(set_up.params) or "", None)

    def forget_open(self) -> None:
        """Whoever was asked is gone and will not answer; its initialization may be tried again."""
        self._open = {call: each for call, each in self._open.items() if _is_initialize(each)}
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


def _is_initialize(set_up: SetUp) -> bool:
    return set_up.method == "initialize"
