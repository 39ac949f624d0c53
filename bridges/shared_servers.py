"""Isolation of sessions in an agent that shares MCP servers among them.

Such an agent (`mcp_servers: shared` in `proxies/quirks.yaml`) gives every session's model the tools
of all sessions' servers, and a call reaches whichever server the model named. Each session's server
has a name of its own there (`names`), and here the bridge keeps the sessions apart:

- A session is *active* while a prompt or its set-up is in flight.
- A server answers the lists of tools, prompts and resources with nothing while other sessions are
  active and its own is not. When a prompt comes, servers whose tool list would now be another one
  say that it changed, and the prompt waits until the agent has read it again (1 s at most). A ping
  shows that it has: MCP clients take messages in order, and the prompt takes another way.
- A call to the server of a session that is not active is refused.
- While several sessions are active their tools can be seen by all; a tool call goes to the server
  only if the agent reports it for the server's own session (`callers`), and is refused otherwise.

For agents of which nothing is known this only notices that they share servers, by a call that
cannot come from the session that the server belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec
import trio

from bridges.bindings import members_of
from bridges.call_attribution import CallAttribution, tool_title
from bridges.mcp_connection import TOOLS_CHANGED, McpConnection, is_modern
from conductor.bridging import (
    DECODE_ERRORS,
    INVALID_REQUEST,
    InFlightRequest,
    Payload,
    encode_error,
)
from conductor.log import get_logger

__all__ = ["AgentSession", "SessionFilter", "SharedServers"]

_TOOLS: Final = "tools/list"
_LIST_METHODS: Final = {
    _TOOLS: "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Lists that are empty while the server is hidden, and the member of the result."""
_CALL_METHODS: Final = frozenset(
    {"tools/call", "prompts/get", "resources/read", "resources/subscribe", "completion/complete"}
)
_MAX_PINGS: Final = 8
_RELIST_TIMEOUT: Final = 1.0
"""Seconds that a prompt waits for the agent to read tool lists."""

log = get_logger(component="mcp-bridge")


@attrs.define(eq=False)
class AgentSession:
    """One session of the agent; its id is not known before the answer to its set-up."""

    id: str | None = None
    active: int = 0
    """Prompts and set-ups in flight."""
    session_filters: set[SessionFilter] = attrs.field(factory=set)


@attrs.define(eq=False)
class SharedServers:
    """`tap` shows a function the agent's updates until what it returns is called.

    `on_unexpected_sharing` is called when an agent of which nothing is known turns out to share.
    """

    tap: Callable[[Callable[[bytes | None], bool]], Callable[[], None]]
    later: Callable[[float, Callable[[], None]], None]
    on_unexpected_sharing: Callable[[], None]
    enforced: bool = False
    """Whether the agent is known to share; otherwise calls are only looked at."""
    _active: set[AgentSession] = attrs.field(factory=set, init=False)
    _listed: set[SessionFilter] = attrs.field(factory=set, init=False)
    """Servers whose tools the agent has listed."""
    _callers: CallAttribution = attrs.field(init=False)
    _untap: Callable[[], None] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._callers = CallAttribution(self.later)

    # -- what sessions do --------------------------------------------------------------------------

    def begin(self, session: AgentSession) -> None:
        """A prompt or a set-up of this session is sent to the agent."""
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
                    session_filter.ask_again()
        if len(self._active) < 2 and self._untap is not None:
            self._untap()
            self._untap = None
            self._callers.forget()

    async def show(self, session: AgentSession) -> None:
        """Let the agent see this session's tools, and those of no session that is not active."""
        if not self.enforced:
            return
        stale = [
            session_filter
            for session_filter in self._listed
            if session_filter.session not in self._active
        ]
        stale += [
            session_filter for session_filter in session.session_filters if session_filter.hidden
        ]
        for session_filter in stale:
            session_filter.ask_again()
        with trio.move_on_after(_RELIST_TIMEOUT) as scope:
            for session_filter in stale:
                await session_filter.told.wait()
        if scope.cancelled_caught:
            log.warning("the agent did not read changed tool lists", session=session.id)

    # -- what screens ask --------------------------------------------------------------------------

    def shows(self, session: AgentSession) -> bool:
        return not self.enforced or not self._active or session in self._active

    def listed(self, session_filter: SessionFilter, visible: bool) -> None:
        if visible:
            self._listed.add(session_filter)
        else:
            self._listed.discard(session_filter)

    def judge(
        self,
        session_filter: SessionFilter,
        method: str,
        params: Payload | None,
        decide: Callable[[bool], None],
    ) -> bool:
        """Whether a call is passed on now; if not, `decide` is called, now or later."""
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

        def reported(id: str | None) -> None:
            alone = len(self._active) < 2 and session in self._active
            decide(id == session.id if id is not None else alone)

        self._callers.ask(tool_title(session_filter.name, tool), arguments, reported)
        return False

    def _on_update(self, params: bytes | None) -> bool:
        self._callers.record_update(params)
        return False


@attrs.define(eq=False)
class SessionFilter:
    """Stands before the server of one link. `name` is the one that the agent was given."""

    shared: SharedServers
    session: AgentSession
    name: str
    mcp_connection: McpConnection
    hidden: bool = False
    """Whether the agent was given an empty list of tools last."""
    told: trio.Event = attrs.field(factory=trio.Event)
    """Set while no list of tools is awaited."""
    _modern: bool = attrs.field(default=False, init=False)
    _pings: int = attrs.field(default=0, init=False)
    """Pings that the agent has not answered."""
    _tools: bytes | None = attrs.field(default=None, init=False)
    """The server's tools, to answer at once when the agent asks again."""

    def __attrs_post_init__(self) -> None:
        self.told.set()
        self.session.session_filters.add(self)

    def close(self) -> None:
        self.session.session_filters.discard(self)
        self.shared.listed(self, False)
        self.told.set()

    def ask_again(self) -> None:
        """Make the agent read the list of tools again; `told` is set when it has.

        A list that the server has to be asked for is not waited for: the answer would come behind
        the prompt that waits.
        """
        if self._tools is not None or not self.shared.shows(self.session):
            self.told.set()  # what waits for an earlier list waits no longer
            self.told = trio.Event()
        self.mcp_connection.consumer.notify(TOOLS_CHANGED, None)

    def takes(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Whether this request of the agent's is dealt with here."""
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
                log.warning("a call to another session's MCP server is refused", server=self.name)
                self.mcp_connection.reply(call, None, _wrong_session_error(self.name))

        params = None if params is None else bytes(params)
        return not self.shared.judge(self, method, params, decide)

    def answered(self, result: bytes) -> bytes:
        """What the agent is told in place of the server's list of tools."""
        self._tools = None if b'"nextCursor"' in result else result
        self.told.set()
        return self._tell(result)

    def changed(self) -> None:
        """The server says that its tools are other ones now."""
        self._tools = None

    def _list(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        self._modern = is_modern(params)
        if method == _TOOLS:
            if self._tools is None or (self.told.is_set() and self.shared.shows(self.session)):
                return False
            self.mcp_connection.consumer.respond(call, self._tell(self._tools), None)
            if not self.told.is_set():
                self._ping()
            return True
        if self.shared.shows(self.session):
            return False
        self.mcp_connection.reply(call, _empty(_LIST_METHODS[method], self._modern), None)
        return True

    def _tell(self, tools: bytes) -> bytes:
        self.hidden = not self.shared.shows(self.session)
        self.shared.listed(self, not self.hidden)
        return _empty(_LIST_METHODS[_TOOLS], self._modern) if self.hidden else tools

    def _ping(self) -> None:
        """Set `told` when the agent has read what it was sent before."""
        told = self.told
        if self._modern or self._pings >= _MAX_PINGS:
            told.set()  # such a client is not asked anything, or does not answer
            return

        def ponged(result: bytes | None, error: bytes | None) -> None:
            self._pings -= 1
            told.set()  # not a later one: that is for a later list

        self._pings += 1
        self.mcp_connection.consumer.request("ping", None, ponged)


def _tool_and_arguments(params: Payload | None) -> tuple[str, Any]:
    members = members_of(params) if params is not None else {}
    try:
        name = msgspec.json.decode(members.get("name", b'""'))
        return str(name), msgspec.json.decode(members.get("arguments", b"{}"))
    except DECODE_ERRORS:
        return "", None


def _empty(member: str, modern: bool) -> bytes:
    more = b',"resultType":"complete","ttlMs":0,"cacheScope":"private"' if modern else b""
    return b'{"%b":[]%b}' % (member.encode(), more)


def _wrong_session_error(name: str) -> bytes:
    text = f"MCP server {name!r} belongs to another session of this agent"
    return encode_error(INVALID_REQUEST, text)
