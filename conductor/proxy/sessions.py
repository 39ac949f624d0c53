"""Sessions and chain as a plugin sees them, and state of its own per session (`per_session`).

The state is read from the messages that pass through the plugin, the same in protocol versions 1
and 2. `session_tracking` feeds it; this module waits for nothing but `Session.say` and `notice`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from types import FunctionType
from typing import Any, Final, Generic, Literal, TypeVar, overload

import attrs
import trio

from conductor.acp import MAX_AGENTS_ID
from conductor.acp.sessions import AgentToolCall, SessionFacts, ToolCallMemory
from conductor.acp.turns import SessionTurns, Turns
from conductor.error_codes import INTERNAL_ERROR
from conductor.errors import LocalProtocolError, RequestError
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.conversion import Body
from conductor.proxy.peers import ClientPeer
from conductor.proxy.slash_commands import AnnouncedCommands, SlashCommands, is_handled, say
from conductor.routing.notices import paragraph

__all__ = [
    "ChainInfo",
    "Session",
    "TurnEnd",
    "chain_info",
    "forget_all_sessions",
    "forget_session",
    "mark_sessions_open",
    "per_session",
    "session_in",
    "session_of",
    "shows_notices",
]

T = TypeVar("T")

_MAX_UNOPENED: Final = 1000
_MAX_UNOPENED_CHARACTERS: Final = 1024 * 1024
"""Maximum characters of their ids, without the newest one."""
_ids: Iterator[int] = itertools.count(1)


@attrs.define(eq=False)
class ChainInfo:
    """Facts about the chain, from `initialize`."""

    protocol_version: int = 1
    client_info: Mapping[str, Any] = attrs.field(factory=dict)
    agent_info: Mapping[str, Any] = attrs.field(factory=dict)
    client_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    agent_capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    misfits: set[str] = attrs.field(factory=set)
    """The handlers, as `file:line`, that have got a notification that does not fit their type."""
    commands: SlashCommands = attrs.field(factory=SlashCommands)
    mcp_servers: dict[str, str] = attrs.field(factory=dict)
    """Names of MCP servers over ACP, by server id."""
    mcp_connections: dict[str, str] = attrs.field(factory=dict)
    """Server ids, by connection id."""
    turns: Turns[Any] = attrs.field(factory=lambda: Turns(2))
    """The turns of all sessions. In version 1, where only subagents report states, a prompt is
    answered with the stop reason that ends it."""
    open_texts: dict[tuple[Any, str | None], Any] = attrs.field(factory=dict)
    """The texts that pass a filter (`TextStreams`), by the author's function and the session."""
    tool_calls: ToolCallMemory = attrs.field(factory=ToolCallMemory)

    def asked(self, params: Any) -> None:
        """Record the params of `initialize`, of version 1 or 2."""
        params = _members(params)
        self.client_info = _members(params.get("clientInfo", params.get("info")))
        self.client_capabilities = _members(
            params.get("clientCapabilities", params.get("capabilities"))
        )

    def answered(self, result: Any) -> None:
        """Record the result of `initialize`, of version 1 or 2."""
        result = _members(result)
        version = result.get("protocolVersion")
        self.protocol_version = version if isinstance(version, int) else 1
        self.agent_info = _members(result.get("agentInfo", result.get("info")))
        self.agent_capabilities = _members(
            result.get("agentCapabilities", result.get("capabilities"))
        )


def chain_info(plugin: Any) -> ChainInfo:
    """The `ChainInfo` of a plugin, created on first use."""
    try:
        info: ChainInfo = plugin._acp_chain
    except AttributeError:
        info = plugin._acp_chain = ChainInfo()
    return info


@attrs.frozen
class TurnEnd:
    """The end of a prompt turn."""

    stop_reason: str | None
    """Why the agent stopped: `end_turn`, `cancelled`, …; `None` if the prompt failed."""
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    """The tokens that the agent reported with the end of the turn; empty if none."""
    error: RequestError | None = None
    """The error with which the agent answered the prompt, or ended the turn (version 2)."""
    unfinished: Sequence[AgentToolCall] = ()
    """The tool calls that the agent has left pending or in progress, as they count now: failed, or
    cancelled (version 2)."""
    meta: Mapping[str, Any] = attrs.field(factory=dict)
    """The `_meta` of the message that has ended it; empty if absent."""


@attrs.define(eq=False)
class Session(SessionFacts):
    """One session. Its attributes change as messages pass."""

    commands: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)
    chain: ChainInfo = attrs.field(factory=ChainInfo)
    cancelled: bool = False
    """Whether the client has cancelled the running turn."""
    held_prompts: set[trio.CancelScope] = attrs.field(factory=set, repr=False)
    """The scopes of prompts that wait (`Prompt.wait`)."""
    _client: ClientPeer | None = None
    _find: Callable[[str], Session] | None = attrs.field(default=None, repr=False)
    """Finds a session of the same proxy by its id."""

    @property
    def protocol_version(self) -> int:
        return self.chain.protocol_version

    @property
    def turns(self) -> SessionTurns[Any]:
        return self.chain.turns.of(self.id)

    @property
    def is_running(self) -> bool:
        """Whether a turn runs. In version 2 from the response to a prompt, or the agent's report
        that it runs, to its report that it is idle."""
        turns = self.chain.turns.sessions.get(self.id)
        if turns is None:
            return False
        return turns.is_running if self.protocol_version == 1 else turns.is_underway

    @property
    def tool_calls(self) -> dict[str, AgentToolCall]:
        """The tool calls that the agent has not ended, by id. Handlers of the update that ends a
        call still find it here."""
        return self.call_table.open

    @property
    def client_info(self) -> Mapping[str, Any]:
        return self.chain.client_info

    @property
    def agent_info(self) -> Mapping[str, Any]:
        return self.chain.agent_info

    @property
    def agent_name(self) -> str:
        """The name of the agent in its `initialize` result; empty if absent."""
        return str(self.agent_info.get("name") or "")

    @property
    def ancestors(self) -> list[Session]:
        """The sessions above a subagent's session: the one that started it, the one above that, and
        so on up to the user's session. Empty for a session of the user.

        Agents announce these relations; a circle ends where it begins again.
        """
        last, found = self, dict[Session, None]()
        while self._find is not None and last.parent is not None:
            last = self._find(last.parent)
            if last is self or last in found:
                break
            found[last] = None
        return list(found)

    @property
    def user_session(self) -> Session:
        """The user's session that a subagent's session belongs to; a session of the user itself."""
        return [self, *self.ancestors][-1]

    @property
    def is_placed(self) -> bool:
        """Whether its user's session is known: it was opened, or it is of a subagent that was
        announced in a session that was opened."""
        return self.user_session.opened_by is not None

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
        if not shows_notices(self):
            words = title if description is None else f"{title}: {description}"
            await self.say(paragraph(f"[{words}]"))
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
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        return isinstance(outcome, dict) and outcome.get("optionId") == "allow"

    def _peer(self, what: str) -> ClientPeer:
        if self._client is None or not self.id:
            raise LocalProtocolError(
                f"Session.{what} works once the session has an id: call it in @on_session, or later"
            )
        return self._client

    # ---- what messages change --------------------------------------------------------------------

    def subagent_of(self, parent: Session, update: Mapping[str, Any]) -> None:
        """Record that a subagent of `parent` has this session. It has the directories and the MCP
        servers of its parent, unless the agent tells others.

        A session that the client has opened stays the user's, and one that has its place below a
        user's session stays there: what rules and budgets say of it is not the agent's to change.
        """
        if parent.opened_by is None and len(parent.id) > MAX_AGENTS_ID:
            return
        if self.opened_by is not None or (parent.id != self.parent and self.is_placed):
            return
        self.placed_below(parent, update)

    def state_update(self, update: Mapping[str, Any]) -> TurnEnd | None:
        """Record a version 2 state update; returns the end of the turn if it ends one."""
        turns = self.chain.turns.of_agent(self.id)
        if turns is None or is_handled(update):
            return None
        ended = turns.take(update, trio.current_time())
        return None if ended is None else self.turn_ended(update)

    def turn_ended(self, holder: Mapping[str, Any], error: RequestError | None = None) -> TurnEnd:
        """Record the end of a turn, by the response to its prompt (version 1), the error, or the
        state update (version 2); returns it."""
        usage, background = holder.get("usage"), holder.get("background")
        reason = None
        if error is None:
            told = holder.get("stopReason")
            reason = told if isinstance(told, str) else "end_turn"
        if reason == "error" and error is None:
            error = _error(holder.get("error"))
        is_cancelled = reason == "cancelled" and self.protocol_version > 1
        unfinished = self.call_table.turn_ended(
            "cancelled" if is_cancelled else "failed",
            background if isinstance(background, list) else [],
        )
        return TurnEnd(reason, _members(usage), error, unfinished, _members(holder.get("_meta")))


def session_of(plugin: Any, id: str) -> Session:
    """The session with this id, created if the plugin has not seen it opened."""
    session: Session = plugin._acp_session_objects[id]
    if not session.id:
        session.id, session.chain, session._client = id, chain_info(plugin), plugin.client
        session.call_table.version = session.protocol_version
        session._find = partial(session_of, plugin)
    return session


def session_in(plugin: Any, body: Body) -> Session | None:
    """The session that a message names; looked up once."""
    if body.session is None and (id := body.session_id) is not None:
        body.session = session_of(plugin, id)
    session: Session | None = body.session
    return session


def shows_notices(session: Session) -> bool:
    """Whether the client shows notices apart from the conversation."""
    offered = session.chain.client_capabilities.get("session")
    supported = isinstance(offered, dict) and isinstance(offered.get("notices"), dict)
    return supported or session.protocol_version > 1


def _error(told: Any) -> RequestError:
    """The error of a turn that has ended with one (version 2)."""
    error = _members(told)
    code, message = error.get("code"), error.get("message")
    return RequestError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "The turn has ended with an error",
        error.get("data"),
    )


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class per_session(Generic[T]):
    """A class attribute with one value of `factory` per plugin instance and session id.

    The factory is a class, a function without parameters, or a method: it gets the plugin. Declare
    the attribute without an annotation: with one it would be an option of the plugin.
    """

    def __init__(self, factory: Callable[[], T] | Callable[[Any], T]) -> None:
        if not callable(factory):
            raise DeclarationError(
                f"per_session({factory!r}): write a function that makes the value of each session, "
                f"such as `per_session(list)` or `per_session(lambda: …)`"
            )
        self._factory: Callable[..., T] = factory
        self._takes_plugin = (
            isinstance(factory, FunctionType) and len(signature(factory).parameters) == 1
        )
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> per_session[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> defaultdict[str, T]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        kept: PluginSessions = instance._acp_sessions
        found = kept.states.get(self._name)
        if found is None:
            factory = partial(self._factory, instance) if self._takes_plugin else self._factory
            found = kept.states[self._name] = _States(self._name, factory, kept.open)
        return found


class _States(defaultdict[str, T]):
    """The values of one attribute, by session id; bounded for sessions that are not open."""

    def __init__(self, name: str, factory: Callable[[], T], open: set[str]) -> None:
        super().__init__(factory)
        self._name = name
        self._open = open
        self._unknown: dict[str, None] = {}
        """Ids that were not open when their value was created, oldest first."""
        self._characters = 0
        """Characters of the ids in `_unknown`."""

    def __missing__(self, id: str) -> T:
        if not isinstance(id, str):
            name = self._name
            raise TypeError(
                f"{name}[…] takes the id of a session, not a {type(id).__name__}: "
                f"write `self.{name}[session.id]`"
            )
        if id not in self._open and id not in self._unknown:
            self._unknown[id] = None
            self._characters += len(id)
            while self._are_too_many():
                oldest = next(iter(self._unknown))
                del self._unknown[oldest]
                self._characters -= len(oldest)
                if oldest not in self._open:
                    self.pop(oldest, None)
        return super().__missing__(id)

    def _are_too_many(self) -> bool:
        count = len(self._unknown)
        return count > _MAX_UNOPENED or (self._characters > _MAX_UNOPENED_CHARACTERS and count > 1)


@attrs.define
class PluginSessions:
    """The session state of one plugin."""

    open: set[str] = attrs.field(factory=set)
    """Ids of open sessions; the limit `max_sessions` bounds their number."""
    states: dict[str, _States[Any]] = attrs.field(factory=dict)
    """By attribute name."""


def mark_sessions_open(plugin: Any, session_ids: Iterable[str]) -> None:
    """Record sessions as open: their state is kept until they end."""
    plugin._acp_sessions.open.update(session_ids)


def forget_session(plugin: Any, session_id: str) -> None:
    """Drop the state of a session."""
    kept: PluginSessions = plugin._acp_sessions
    kept.open.discard(session_id)
    for sessions in kept.states.values():
        sessions.pop(session_id, None)


def forget_all_sessions(plugin: Any) -> None:
    """Drop the state of all sessions."""
    kept: PluginSessions = plugin._acp_sessions
    kept.open.clear()
    kept.states.clear()
