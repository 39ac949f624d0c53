"""Sessions as a plugin sees them: what set them up, their tool calls, mode, options and turns.

The state is read from the messages that pass through the plugin, the same in protocol versions 1
and 2. `event_layers` feeds it; this module waits for nothing but `Session.say` and `notice`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from conductor.errors import LocalProtocolError, RequestError
from conductor.proxy.mcp_server_names import McpServerNames
from conductor.proxy.peers import ClientPeer
from conductor.proxy.session_state import per_session
from conductor.proxy.slash_commands import AnnouncedCommands, SlashCommands, is_handled, say
from conductor.proxy.text_streams import TextStreams

__all__ = [
    "AgentToolCall",
    "ChainInfo",
    "OpenedBy",
    "Session",
    "SessionSet",
    "TurnEnd",
    "chain_info",
    "session_of",
]

_ids: Iterator[int] = itertools.count(1)

OpenedBy: TypeAlias = Literal["new", "load", "resume", "fork"]

_FINISHED: Final = frozenset({"completed", "failed", "cancelled"})
_MAX_CALLS: Final = 1000
"""Tool calls kept per session; an agent that never finishes them loses the oldest."""


@attrs.frozen
class TurnEnd:
    """The end of a prompt turn."""

    stop_reason: str | None
    """Why the agent stopped: `end_turn`, `cancelled`, …; `None` if the prompt failed."""
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    """The tokens that the agent reported with the end of the turn; empty if none."""
    error: RequestError | None = None
    """The error with which the agent answered the prompt."""


@attrs.define
class AgentToolCall:
    """A tool call of the agent, merged from all messages about it so far."""

    id: str
    members: dict[str, Any] = attrs.field(factory=dict)
    """All members, as on the wire."""
    _chunks: list[Any] | None = attrs.field(default=None, init=False, eq=False, repr=False)
    """The content that chunks are appended to; that of a message is not changed."""

    @property
    def title(self) -> str:
        return str(self.members.get("title") or "")

    @property
    def kind(self) -> str:
        """`read`, `edit`, `execute`, …; `other` if the agent has not told."""
        return str(self.members.get("kind") or "other")

    @property
    def status(self) -> str:
        return str(self.members.get("status") or "pending")

    @property
    def name(self) -> str | None:
        """The programmatic name of the tool, if the agent tells it."""
        name = self.members.get("name")
        return name if isinstance(name, str) else None

    @property
    def raw_input(self) -> Any:
        return self.members.get("rawInput")

    @property
    def raw_output(self) -> Any:
        return self.members.get("rawOutput")

    @property
    def content(self) -> Sequence[Any]:
        return self.members.get("content") or ()

    @property
    def locations(self) -> Sequence[Any]:
        return self.members.get("locations") or ()

    @property
    def is_finished(self) -> bool:
        return self.status in _FINISHED

    def merge(self, update: Mapping[str, Any]) -> None:
        """Apply a tool call, or an update of one. Members that are null leave what is known."""
        if update.get("sessionUpdate") == "tool_call_content_chunk":
            content: list[Any] | None = self.members.get("content")
            if content is None or content is not self._chunks:
                self._chunks = self.members["content"] = content = list(self.content)
            content.append(update.get("content"))
            return
        for name, value in update.items():
            if value is not None and name != "sessionUpdate":
                self.members[name] = value


@attrs.define(eq=False)
class Session:
    """One session. Its attributes change as messages pass.

    `tool_calls` holds the tool calls that have not ended, by id; handlers of the update that ends a
    call still find it there.
    """

    id: str = ""
    opened_by: OpenedBy | None = None
    """The request that opened it; `None` for a session that the plugin has not seen opened, such
    as that of a subagent."""
    forked_from: str | None = None
    """The session that it was forked from."""
    parent: str | None = None
    """The session that a subagent's session belongs to."""
    cwd: str = ""
    additional_directories: list[str] = attrs.field(factory=list)
    mcp_servers: list[dict[str, Any]] = attrs.field(factory=list)
    """The declarations of MCP servers in the set-up request."""
    title: str | None = None
    mode: str | None = None
    config_options: list[dict[str, Any]] = attrs.field(factory=list)
    tool_calls: dict[str, AgentToolCall] = attrs.field(factory=dict)
    commands: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)
    chain: ChainInfo = attrs.field(factory=lambda: ChainInfo())
    is_running: bool = False
    """Whether a turn runs. In version 2 from the response to a prompt, or the agent's report that
    it runs, to its report that it is idle."""
    state_updates: int = 0
    """Number of states of turns that the agent has reported (version 2)."""
    cancelled: bool = False
    """Whether the client has cancelled the running turn."""
    held_prompts: set[trio.CancelScope] = attrs.field(factory=set, repr=False)
    """The scopes of prompts that wait (`Prompt.wait`)."""
    _client: ClientPeer | None = None
    _find: Callable[[str], Session] | None = attrs.field(default=None, repr=False)
    """Finds a session of the same proxy by its id."""
    _old_calls: set[str] = attrs.field(factory=set)
    """Calls that were unfinished at the end of their turn."""
    _ended_calls: deque[str] = attrs.field(factory=lambda: deque(maxlen=_MAX_CALLS))
    _asked_calls: dict[str, AgentToolCall] = attrs.field(factory=dict)
    """Calls of permission requests, merged with the updates before and since."""

    @property
    def protocol_version(self) -> int:
        return self.chain.protocol_version

    @property
    def client_info(self) -> Mapping[str, Any]:
        return self.chain.client_info

    @property
    def agent_info(self) -> Mapping[str, Any]:
        return self.chain.agent_info

    @property
    def agent_name(self) -> str:
        """The name of the agent in its `initialize` result; empty if it has told none."""
        return str(self.agent_info.get("name") or "")

    @property
    def ancestors(self) -> list[Session]:
        """Of a subagent's session: the session that started it, the one above that, and so on up
        to the user's session. Empty for a session of the user.

        Agents announce these relations; a circle ends where it begins again.
        """
        found: list[Session] = [self]
        while self._find is not None and (parent := found[-1].parent) is not None:
            above = self._find(parent)
            if above in found:
                break
            found.append(above)
        return found[1:]

    @property
    def user_session(self) -> Session:
        """The user's session that a subagent's session belongs to; a session of the user itself."""
        return [self, *self.ancestors][-1]

    @property
    def mcp_server_names(self) -> list[str]:
        """The names of the MCP servers in the set-up request."""
        return [each["name"] for each in self.mcp_servers if isinstance(each.get("name"), str)]

    async def say(self, text: str) -> None:
        """Show a text to the user, as a message of the agent."""
        await say(self._peer("say()"), self.id, text, version=self.protocol_version)

    async def notice(
        self,
        title: str,
        description: str | None = None,
        *,
        severity: Literal["info", "warning", "error"] = "info",
    ) -> None:
        """Show a notice to the user, apart from the conversation.

        A client of version 1 that does not announce `session.notices` gets a message of the agent
        with the same words (RFD session notices).
        """
        client = self._peer("notice()")
        if not self._shows_notices():
            words = title if description is None else f"{title}: {description}"
            await self.say(f"\n[{words}]\n")
            return
        update: dict[str, Any] = {"sessionUpdate": "notice", "severity": severity, "title": title}
        if description is not None:
            update["description"] = description
        await client.update(self.id, update)

    async def ask(self, title: str, description: str | None = None, *, kind: str = "other") -> bool:
        """Ask the user for permission: allow or reject. Returns whether it was given.

        Version 1 shows it as a tool call of this `kind` (`edit`, `execute`, …); version 2 shows no
        kind. It is not given if the turn is cancelled before the answer. Raises `RequestError` if
        the client answers with an error.
        """
        client = self._peer("ask()")
        options = [
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ]
        params: dict[str, Any] = {"sessionId": self.id, "options": options}
        if self.protocol_version > 1:
            params["title"] = title
            if description is not None:
                params["description"] = description
        else:
            call = {
                "toolCallId": f"conductor-permission-{next(_ids)}",
                "title": title,
                "kind": kind,
            }
            content = {"type": "content", "content": {"type": "text", "text": description}}
            params["toolCall"] = call if description is None else {**call, "content": [content]}
        answer = await client.request("session/request_permission", params)
        return _object(_object(answer).get("outcome")).get("optionId") == "allow"

    def _peer(self, what: str) -> ClientPeer:
        if self._client is None or not self.id:
            raise LocalProtocolError(
                f"Session.{what} works once the session has an id: call it in @on_session, or later"
            )
        return self._client

    def _shows_notices(self) -> bool:
        offered = self.chain.client_capabilities.get("session")
        supported = isinstance(offered, dict) and isinstance(offered.get("notices"), dict)
        return supported or self.protocol_version > 1

    # ---- what messages change --------------------------------------------------------------------

    def set_up(self, method: str, params: Mapping[str, Any]) -> None:
        """Record the set-up request."""
        self.opened_by = method.removeprefix("session/")  # type: ignore[assignment]
        self.forked_from = params.get("sessionId") if self.opened_by == "fork" else None
        cwd = params.get("cwd")
        self.cwd = cwd if isinstance(cwd, str) else ""
        directories = params.get("additionalDirectories") or ()
        self.additional_directories = [each for each in directories if isinstance(each, str)]
        servers = params.get("mcpServers") or ()
        self.mcp_servers = [each for each in servers if isinstance(each, dict)]

    def subagent_of(self, parent: Session, update: Mapping[str, Any]) -> None:
        """Record that a subagent of `parent` has this session. It has the directories and the MCP
        servers of its parent, unless the agent tells others."""
        self.parent = parent.id
        if self.opened_by is not None:
            return
        self.mcp_servers = parent.mcp_servers
        if "cwd" in update or not self.cwd:
            self.cwd = _text(update.get("cwd"), None) or parent.cwd
        if "additionalDirectories" in update or not self.additional_directories:
            told = update.get("additionalDirectories")
            directories = told if isinstance(told, list) else parent.additional_directories
            self.additional_directories = [each for each in directories if isinstance(each, str)]

    def opened(self, result: Mapping[str, Any]) -> None:
        """Record the response to the set-up request."""
        modes = result.get("modes")
        if isinstance(modes, dict) and isinstance(modes.get("currentModeId"), str):
            self.mode = modes["currentModeId"]
        self._read_options(result)

    def update(self, update: Mapping[str, Any]) -> None:
        """Record an update other than of a tool call."""
        match update.get("sessionUpdate"):
            case "current_mode_update":
                self.mode = _text(update.get("currentModeId"), self.mode)
            case "config_option_update":
                self._read_options(update)
            case "session_info_update":
                self.title = _text(update.get("title"), self.title)

    def update_tool_call(
        self, update: Mapping[str, Any]
    ) -> tuple[AgentToolCall, Literal["start", "end"] | None, bool]:
        """Record an update of a tool call.

        Returns the call, whether it starts ("start"), and whether it is finished now. An update of
        a call that has finished changes nothing; a `tool_call` may use its id again, also that of a
        call of an earlier turn that the agent has never finished.
        """
        id = str(update.get("toolCallId", ""))
        call = self.tool_calls.get(id)
        again = update.get("sessionUpdate") == "tool_call"
        if call is None and id in self._ended_calls:
            if not again:
                ended = AgentToolCall(id)
                ended.merge(update)
                return ended, None, False
            self._ended_calls.remove(id)
        starts = call is None
        if call is None:
            call = self.tool_calls[id] = AgentToolCall(id)
            if len(self.tool_calls) > _MAX_CALLS:
                del self.tool_calls[next(iter(self.tool_calls))]
        elif again:
            starts = id in self._old_calls
            call.members.clear()
        if again:
            self._asked_calls.pop(id, None)
        elif id in self._asked_calls:
            self._asked_calls[id].merge(update)
        self._old_calls.discard(id)
        call.merge(update)
        return call, "start" if starts else None, call.is_finished

    def forget_ended(self, call: AgentToolCall) -> None:
        """Drop a tool call that has ended, once its last update was handled."""
        if call.is_finished and self.tool_calls.get(call.id) is call:
            del self.tool_calls[call.id]
            self._ended_calls.append(call.id)
            self._asked_calls.pop(call.id, None)

    def asked_call(self, told: Mapping[str, Any]) -> AgentToolCall:
        """Record the tool call in a permission request, which the agent may not have announced.

        Returns it merged from all updates and permission requests about it.
        """
        id = str(told.get("toolCallId", ""))
        call = self._asked_calls.get(id)
        if call is None:
            announced = self.tool_calls.get(id)
            call = AgentToolCall(id, {} if announced is None else dict(announced.members))
        call.merge(told)
        if id and not call.is_finished:
            self._asked_calls[id] = call
            if len(self._asked_calls) > _MAX_CALLS:
                del self._asked_calls[next(iter(self._asked_calls))]
        return call

    def state_update(self, update: Mapping[str, Any]) -> TurnEnd | None:
        """Record a version 2 state update; returns the end of the turn if it ends one."""
        if is_handled(update):
            return None
        self.state_updates += 1
        state = update.get("state")
        if state in ("running", "requires_action"):
            self.is_running = True
        elif state == "idle" and self.is_running:
            self.turn_ended()  # a repeated idle update is not the end of another turn
            return turn_end(update)
        return None

    def turn_ended(self) -> None:
        """Record the end of a turn."""
        self.is_running = False
        self._old_calls = set(self.tool_calls)

    def _read_options(self, holder: Mapping[str, Any]) -> None:
        options = holder.get("configOptions")
        if isinstance(options, list):
            self.config_options = [each for each in options if isinstance(each, dict)]


def turn_end(holder: Mapping[str, Any]) -> TurnEnd:
    """The end of a turn in a response to a prompt (version 1) or a state update (version 2)."""
    usage = holder.get("usage")
    return TurnEnd(
        _text(holder.get("stopReason"), "end_turn"), usage if isinstance(usage, dict) else {}
    )


def _text(value: Any, default: str | None) -> str | None:
    return value if isinstance(value, str) else default


@attrs.define(eq=False)
class ChainInfo:
    """What `initialize` has told about the chain."""

    protocol_version: int = 1
    client_info: Mapping[str, Any] = attrs.field(factory=dict)
    agent_info: Mapping[str, Any] = attrs.field(factory=dict)
    client_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    agent_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    misfits: set[str] = attrs.field(factory=set)
    """The handlers, as `file:line`, that have got a notification that does not fit their type."""
    commands: SlashCommands = attrs.field(factory=SlashCommands)
    mcp_names: McpServerNames = attrs.field(factory=McpServerNames)
    open_texts: dict[tuple[Any, str | None], TextStreams] = attrs.field(factory=dict)
    """The texts that pass a filter, by the author's function and the session."""
    tool_call_bytes: int = 0
    """Bytes about tool calls that the plugin may remember (`kept_tool_calls`)."""
    forgets_tool_calls: bool = False
    """Whether some of them have been forgotten."""

    def asked(self, params: Mapping[str, Any]) -> None:
        """Record the params of `initialize`, of version 1 or 2."""
        self.client_info = _object(params.get("clientInfo", params.get("info")))
        self.client_capabilities = _object(
            params.get("clientCapabilities", params.get("capabilities"))
        )

    def answered(self, result: Mapping[str, Any]) -> None:
        """Record the result of `initialize`, of version 1 or 2."""
        version = result.get("protocolVersion")
        self.protocol_version = version if isinstance(version, int) else 1
        self.agent_info = _object(result.get("agentInfo", result.get("info")))
        self.agent_capabilities = _object(
            result.get("agentCapabilities", result.get("capabilities"))
        )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def chain_info(plugin: Any) -> ChainInfo:
    """The `ChainInfo` of a plugin, created on first use."""
    try:
        info: ChainInfo = plugin._acp_chain
    except AttributeError:
        info = plugin._acp_chain = ChainInfo()
    return info


SessionSet: TypeAlias = "per_session[Session]"


def session_of(plugin: Any, id: str) -> Session:
    """The session with this id, created if the plugin has not seen it opened."""
    session: Session = plugin._acp_session_objects[id]
    if not session.id:
        session.id, session.chain, session._client = id, chain_info(plugin), plugin.client
        session._find = partial(session_of, plugin)
    return session
