"""Attribution of tool calls to sessions, from the agent's own `session/update` reports.

An MCP call has no member for the agent's session. While several sessions of an agent that shares
servers are active, a call may come from any of them. The agent also reports each call to the
client, in a `session/update` with the session id, the tool's name (`title`) and the arguments
(`rawInput`); opencode 1.18 sends it about 20 ms after the call. A call without a report within 5 s
is refused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec

from conductor.bridge_api import DECODE_ERRORS
from conductor.proxy import BoundedDict

__all__ = ["CallAttribution", "tool_title"]

_REPORT_TIMEOUT: Final = 5.0
"""Seconds that a call waits for its report before it is refused."""
_MAX_REPORTS: Final = 256
"""Maximum number of kept reports without a matching call."""


def tool_title(server: str, tool: str) -> str:
    """Return the name of an MCP tool in the reports of an agent that shares servers (opencode)."""
    return "_".join(re.sub(r"[^a-zA-Z0-9_-]", "_", part) for part in (server, tool))


@attrs.frozen
class _CallReport:
    session: str
    title: str
    arguments: Any


@attrs.define(eq=False)
class _PendingCall:
    title: str
    arguments: Any
    decide: Callable[[str | None], None]
    """Called once with the session id, or with `None` if there was no report."""


@attrs.define(eq=False)
class CallAttribution:
    """Matches calls with reports, each report once. `later(seconds, function)` schedules a call."""

    later: Callable[[float, Callable[[], None]], None]
    _reports: deque[_CallReport] = attrs.field(
        factory=lambda: deque(maxlen=_MAX_REPORTS), init=False
    )
    _reported_calls: BoundedDict[tuple[str, str], None] = attrs.field(
        factory=lambda: BoundedDict(_MAX_REPORTS), init=False
    )
    """Tool calls (session id, tool call id) that were already reported."""
    _pending: list[_PendingCall] = attrs.field(factory=list, init=False)

    def ask(self, title: str, arguments: Any, decide: Callable[[str | None], None]) -> None:
        """Find the session of a call of this tool; `decide` is called now or later."""
        for report in self._reports:
            if report.title == title and report.arguments == arguments:
                self._reports.remove(report)
                decide(report.session)
                return
        pending_call = _PendingCall(title, arguments, decide)
        self._pending.append(pending_call)

        def expire() -> None:
            if pending_call in self._pending:
                self._pending.remove(pending_call)
                decide(None)

        self.later(_REPORT_TIMEOUT, expire)

    def record_update(self, params: bytes | None) -> None:
        """Record a `session/update` of the agent."""
        if params is None or b'"tool_call' not in params:
            return
        try:
            session_update = _decode(params)
        except DECODE_ERRORS:
            return
        update, key = (
            session_update.update,
            (session_update.sessionId, session_update.update.toolCallId),
        )
        if not update.sessionUpdate.startswith("tool_call") or not update.title:
            return
        if update.status == "pending" or key in self._reported_calls:
            return  # the arguments are not complete yet, or this call is known
        self._reported_calls[key] = None
        for pending_call in self._pending:
            if pending_call.title == update.title and pending_call.arguments == update.rawInput:
                self._pending.remove(pending_call)
                pending_call.decide(session_update.sessionId)
                return
        self._reports.append(_CallReport(session_update.sessionId, update.title, update.rawInput))

    def forget(self) -> None:
        """Drop all reports and decide pending calls: only one session is active now."""
        self._reports.clear()
        self._reported_calls.clear()
        pending_calls, self._pending = self._pending, []
        for pending_call in pending_calls:
            pending_call.decide(None)


class _AttributedUpdate(msgspec.Struct, gc=False):
    sessionUpdate: str
    toolCallId: str = ""
    title: str | None = None
    status: str | None = None
    rawInput: Any = None


class _SessionUpdate(msgspec.Struct, gc=False):
    sessionId: str
    update: _AttributedUpdate


_decode: Final = msgspec.json.Decoder(_SessionUpdate).decode
