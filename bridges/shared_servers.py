"""Isolation of sessions in an agent that shares MCP servers among them.

Such an agent (`shared` in `bridges/server_scope.py`) gives every session's model the tools
of all sessions' servers, and sends a call to the server that the model names. The bridge gives the
servers of each session distinct names (`server_names`), and isolates the sessions:

- A session is *active* while a prompt or its set-up is in flight.
- A server's lists of tools, prompts and resources are empty while other sessions are active and its
  own is not. Before a prompt is forwarded, the bridge sends `notifications/tools/list_changed` for
  each server with a changed tool list, and the prompt waits until the agent has read the lists
  again (1 s at most). A ping confirms it: MCP clients handle messages in order, but the prompt
  takes another path.
- A call to the server of a session that is not active is refused.
- While several sessions are active, each model can see the tools of all of them. A tool call
  (`tools/call`) is forwarded if the agent reports it for the server's session (`call_attribution`),
  and refused if it reports it for another one. A call that is not reported in time is forwarded
  only if the server's session is by then the only active one. Other calls, such as `prompts/get`
  and `resources/read`, are not attributed: they are forwarded.

For an unknown agent this only detects that it shares servers, by a call that cannot come from the
session to which the server belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from bridges.bindings import members_of
from bridges.call_attribution import CallAttribution, tool_title
from bridges.mcp_connection import McpConnection
from bridges.mcp_protocol import TOOLS_CHANGED, is_modern
from conductor.bridge_api import (
    DECODE_ERRORS,
    INVALID_REQUEST,
    InFlightRequest,
    Payload,
    encode_error,
)
from conductor.json_values import decode_value
from conductor.log import get_logger

__all__ = ["AgentSession", "SessionFilter", "SharedServers"]

_TOOLS: Final = "tools/list"
_LIST_METHODS: Final = {
    _TOOLS: "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""List methods that return nothing while the server is hidden: result member by method."""
_CALL_METHODS: Final = frozenset(
    {"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"}
)
_MAX_PINGS: Final = 8
_RELIST_TIMEOUT: Final = 1.0
"""Seconds that a prompt waits for the agent to read changed tool lists."""

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class AgentSession:
    """One session of the agent; `id` is `None` until its set-up is answered."""

    id: str | None = None
    active: int = 0
    """Prompts and set-ups in flight."""
    session_filters: set[SessionFilter] = attrs.field(factory=set)


@attrs.define(eq=False)
class SharedServers:
    """The sessions of one agent, with the visibility of their servers.

    `tap` registers a function for the agent's updates and returns one that removes it. `later`
    schedules a call after some seconds. `on_unexpected_sharing` is called when an unknown agent is
    found to share servers.
    """

    tap: Callable[[Callable[[bytes | None], bool]], Callable[[], None]]
    later: Callable[[float, Callable[[], None]], None]
    on_unexpected_sharing: Callable[[], None]
    enforced: bool = False
    """Whether the agent is known to share servers; otherwise calls are only observed."""
    tracks_turns: bool = False
    """Whether it is tracked which sessions are active: not for an agent known not to share."""
    _active: set[AgentSession] = attrs.field(factory=set, init=False)
    _listed: set[SessionFilter] = attrs.field(factory=set, init=False)
    """Filters of servers with a tool list that the agent has read."""
    _attribution: CallAttribution = attrs.field(init=False)
    _untap: Callable[[], None] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._attribution = CallAttribution(self.later)

    # -- for the bridge: sessions ------------------------------------------------------------------

    def begin(self, session: AgentSession) -> None:
        """Count a prompt or a set-up of this session that is sent to the agent."""
        session.active += 1
        self._active.add(session)
        if self.enforced and len(self._active) > 1 and self._untap is None:
            self._untap = self.tap(self._on_update)

    def end(self, session: AgentSession) -> None:
        session.active -= 1
        if session.active == 0:
            self._active.discard(session)
            if self.enforced and self._active:
                for session_filter in session.session_filters & self._listed:
                    session_filter.request_relist()
        if len(self._active) < 2 and self._untap is not None:
            self._untap()
            self._untap = None
            self._attribution.forget()

    async def show(self, session: AgentSession) -> None:
        """Make the agent re-read tool lists: this session's tools become visible, those of inactive
        sessions hidden."""
        if not self.enforced:
            return
        changed_filters = [
            session_filter
            for session_filter in self._listed
            if session_filter.session not in self._active
        ]
        changed_filters += [
            session_filter for session_filter in session.session_filters if session_filter.hidden
        ]
        for session_filter in changed_filters:
            session_filter.request_relist()
        with trio.move_on_after(_RELIST_TIMEOUT) as scope:
            for session_filter in changed_filters:
                await session_filter.relisted.wait()
        if scope.cancelled_caught:
            log.warning("the agent did not read changed tool lists", session=session.id)

    # -- for session filters -----------------------------------------------------------------------

    def is_visible(self, session: AgentSession) -> bool:
        return not self.enforced or not self._active or session in self._active

    def set_listed(self, session_filter: SessionFilter, visible: bool) -> None:
        if visible:
            self._listed.add(session_filter)
        else:
            self._listed.discard(session_filter)

    def may_forward(
        self,
        session_filter: SessionFilter,
        method: str,
        params: Payload | None,
        decide: Callable[[bool], None],
    ) -> bool:
        """Whether a call may be forwarded now; if not, `decide` is called with the decision, now or
        later."""
        session = session_filter.session
        if session not in self._active:
            if self.enforced:
                decide(False)
            elif self._active and method == "tools/call":
                self.on_unexpected_sharing()
            return not self.enforced
        if not self.enforced or len(self._active) < 2 or method != "tools/call":
            return True
        tool, arguments = _tool_and_arguments(params)

        def on_report(id: str | None) -> None:
            alone = len(self._active) < 2 and session in self._active
            decide(id == session.id if id is not None else alone)

        self._attribution.ask(tool_title(session_filter.name, tool), arguments, on_report)
        return False

    def _on_update(self, params: bytes | None) -> bool:
        self._attribution.record_update(params)
        return False


@attrs.define(eq=False)
class SessionFilter:
    """Filter before the server of one MCP connection. `name` is the name given to the agent."""

    shared: SharedServers
    session: AgentSession
    name: str
    mcp_connection: McpConnection
    hidden: bool = False
    """Whether the last tool list for the agent was empty."""
    relisted: trio.Event = attrs.field(factory=trio.Event)
    """Set unless the agent is to re-read the tool list."""
    _modern: bool = attrs.field(default=False, init=False)
    _pings: int = attrs.field(default=0, init=False)
    """Number of unanswered pings."""
    _tools: bytes | None = attrs.field(default=None, init=False)
    """Raw `tools/list` result of the server, to answer a repeated request at once."""

    def __attrs_post_init__(self) -> None:
        self.relisted.set()
        self.session.session_filters.add(self)

    def close(self) -> None:
        self.session.session_filters.discard(self)
        self.shared.set_listed(self, False)
        self.relisted.set()

    def request_relist(self) -> None:
        """Make the agent re-read the tool list; `relisted` is set when it has.

        A list that must be requested from the server is not waited for: its response would be
        queued behind the waiting prompt.
        """
        if self._tools is not None or not self.shared.is_visible(self.session):
            self.relisted.set()  # release waiters for an earlier list
            self.relisted = trio.Event()
        self.mcp_connection.consumer.notify(TOOLS_CHANGED, None)

    def takes(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Whether the filter handles this request; otherwise it is forwarded."""
        if method in _LIST_METHODS:
            return self._list(call, method, params)
        if method not in _CALL_METHODS:
            return False

        def decide(allowed: bool) -> None:
            if call.answered or self.mcp_connection.closed:
                return
            if allowed:
                self.mcp_connection.pass_request(call, method, params)
            else:
                log.warning("MCP call refused: server of another session", server=self.name)
                self.mcp_connection.reply(call, None, _wrong_session_error(self.name))

        params = None if params is None else bytes(params)
        return not self.shared.may_forward(self, method, params, decide)

    def answered(self, result: bytes) -> bytes:
        """Return the tool list to send to the agent in place of the server's `result`."""
        self._tools = None if b'"nextCursor"' in result else result
        self.relisted.set()
        return self._visible_tools(result)

    def changed(self) -> None:
        """The server has sent `notifications/tools/list_changed`."""
        self._tools = None

    def _list(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        self._modern = is_modern(params)
        if method == _TOOLS:
            if self._tools is None or (
                self.relisted.is_set() and self.shared.is_visible(self.session)
            ):
                return False
            self.mcp_connection.consumer.respond(call, self._visible_tools(self._tools), None)
            if not self.relisted.is_set():
                self._ping()
            return True
        if self.shared.is_visible(self.session):
            return False
        self.mcp_connection.reply(call, _empty(_LIST_METHODS[method], self._modern), None)
        return True

    def _visible_tools(self, tools: bytes) -> bytes:
        self.hidden = not self.shared.is_visible(self.session)
        self.shared.set_listed(self, not self.hidden)
        return _empty(_LIST_METHODS[_TOOLS], self._modern) if self.hidden else tools

    def _ping(self) -> None:
        """Send a ping; its response sets `relisted`. For a client that takes no requests or leaves
        pings unanswered it is set at once."""
        relisted = self.relisted
        if self._modern or self._pings >= _MAX_PINGS:
            relisted.set()  # this client takes no requests, or does not answer pings
            return

        def on_pong(result: bytes | None, error: bytes | None) -> None:
            self._pings -= 1
            relisted.set()  # of this list; a later list has its own event

        self._pings += 1
        self.mcp_connection.consumer.request("ping", None, on_pong)


def _tool_and_arguments(params: Payload | None) -> tuple[str, Any]:
    members = members_of(params) if params is not None else {}
    try:
        name = decode_value(members.get("name", b'""'))
        return str(name), decode_value(members.get("arguments", b"{}"))
    except DECODE_ERRORS:
        return "", None


def _empty(member: str, modern: bool) -> bytes:
    more = b',"resultType":"complete","ttlMs":0,"cacheScope":"private"' if modern else b""
    return b'{"%b":[]%b}' % (member.encode(), more)


def _wrong_session_error(name: str) -> bytes:
    text = f"MCP server {name!r} belongs to another session of this agent"
    return encode_error(INVALID_REQUEST, text)
