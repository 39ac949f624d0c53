"""A second agent, opened by a plugin: one more chain, with the plugin as its client.

    async with self.open_agent(["other-agent", "--acp"], like=session) as agent:
        turn = await agent.prompt("Is this plan sound? " + plan)

Starting and stopping the chain is the task of the runtime (`SecondAgentHost.open_agent_chain`).
Requests of the agent are answered by the handlers of the plugin, or forwarded to the client for the
session `like`.
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from conductor import __version__
from conductor.acp import session_id_of
from conductor.acp.turns import SessionTurns, Turns
from conductor.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from conductor.errors import (
    ConnectionClosed,
    LocalProtocolError,
    RemoteProtocolError,
    RequestError,
    StartError,
    describe,
)
from conductor.log import get_logger
from conductor.proxy.conversion import encode
from conductor.proxy.peers import ClientPeer, NotificationTap, PromptTurn, TurnCollector
from conductor.proxy.sessions import Session

__all__ = [
    "AgentConnection",
    "AgentSource",
    "RequestHandler",
    "SecondAgent",
    "SecondAgentHost",
    "open_second_agent",
    "start_error",
]

AgentSource: TypeAlias = str | os.PathLike[str] | Sequence[str]
"""The path of a chain file, or the argv of a program."""
RequestHandler: TypeAlias = Callable[[dict[str, Any]], Any]
"""Takes the params of a request; returns the result, or a coroutine of it."""
_PERMISSION: Final = "session/request_permission"
_FORWARDED: Final = (
    *(_PERMISSION, "fs/read_text_file", "fs/write_text_file", "elicitation/create"),
    *("terminal/create", "terminal/output", "terminal/wait_for_exit"),
    *("terminal/kill", "terminal/release"),
)
"""Requests that the client answers for the session `like`."""
_CAPABILITIES: Final = ("fs", "terminal", "elicitation")
"""Capabilities of the client that these requests need."""
_INFO: Final = {"name": "acp-conductor", "version": __version__}
_CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}

UpdateCallback: TypeAlias = Callable[[dict[str, Any]], Awaitable[None] | None]
"""Called with each update of a turn, the `update` member of `session/update`."""

log: Final = get_logger()


class AgentConnection(Protocol):
    """The client's end of a JSON-RPC connection to a running chain."""

    handlers: dict[str, RequestHandler]
    unread: Callable[[], int]
    """Returns the bytes that were received and not yet handled; too many pause the reading."""

    async def request(self, method: str, params: Any = None) -> Any: ...

    def notify(self, method: str, params: Any = None) -> None: ...

    def made_room(self) -> None:
        """Signal that `unread()` has decreased."""


class SecondAgentHost(Protocol):
    """Interface of the runtime for second agents."""

    client: ClientPeer

    def release_lane(self) -> None: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]: ...

    def open_agent_chain(
        self, source: AgentSource, *, name: str | None, env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]:
        """Run a chain for the duration of the block; yields the agent's name and a connection."""

    def handler_failed(self, exc: BaseException, **fields: str) -> None:
        """Log an exception of a handler that the lanes do not call. `fields` name the handler."""


@attrs.define(eq=False, repr=False)
class SecondAgent:
    """An agent that a plugin has opened, with one session. See `Plugin.open_agent`."""

    name: str
    """Its name in the log."""
    session_id: str = attrs.field(default="", init=False)
    protocol_version: int = attrs.field(default=1, init=False)
    info: Mapping[str, Any] = attrs.field(factory=dict, init=False)
    """Name and version, as the agent reports them."""
    capabilities: Mapping[str, Any] = attrs.field(factory=dict, init=False)
    _connection: AgentConnection
    _host: SecondAgentHost
    _turns: SessionTurns[Any] = attrs.field(factory=lambda: Turns[Any](2).of(""), init=False)
    _turn: _Turn | None = attrs.field(default=None, init=False)

    def __repr__(self) -> str:
        return f"SecondAgent({self.name!r})"

    async def prompt(
        self, prompt: str | Sequence[Any], on_update: UpdateCallback | None = None
    ) -> PromptTurn:
        """Send a prompt (a text or content blocks), wait for the end of the turn and return it.

        `on_update` is called with each update of the turn, one after the other; the next one waits
        until it returns. An exception in it cancels the turn and is raised at its end. A handler
        that calls this releases its lane. Raises `RequestError` if the agent answers with an error,
        `ConnectionClosed` if it has ended, and `LocalProtocolError` if a turn is running. If the
        caller is cancelled, so is the turn.
        """
        if self._turn is not None:
            raise LocalProtocolError(
                f"second agent {self.name!r}: prompt() while a turn runs; wait for its end, or "
                "open another agent"
            )
        self._host.release_lane()
        turn = self._turn = _Turn(self.name, self.session_id, self._connection, self._turns)
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn.prompt, blocks)
                try:
                    await turn.deliver(on_update)
                except Exception as exc:  # of the callback: raised below, in no exception group
                    failure = exc
                    await self.cancel()
                    await turn.deliver(None)
                nursery.cancel_scope.cancel()
        finally:
            self._turn = None
            self._connection.made_room()
            if not turn.has_ended:
                self._connection.notify("session/cancel", {"sessionId": self.session_id})
        if failure is not None:
            raise failure
        return turn.outcome

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result, as plain JSON. A handler releases its lane.

        Raises `RequestError` for an error, `ConnectionClosed` if the agent has ended.
        """
        self._host.release_lane()
        return await self._connection.request(method, params)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification, after everything sent before."""
        self._connection.notify(method, params)

    async def cancel(self) -> None:
        """Cancel the running turn: `prompt` then returns with the stop reason `cancelled`."""
        self._turns.cancel(trio.current_time())
        await self.notify("session/cancel", {"sessionId": self.session_id})

    async def _initialize(self, version: int, client_capabilities: Mapping[str, Any]) -> None:
        if version == 1:
            params = {"clientCapabilities": client_capabilities, "clientInfo": _INFO}
        else:
            params = {"capabilities": client_capabilities, "info": _INFO}
        try:
            result = await self._connection.request(
                "initialize", {"protocolVersion": version, **params}
            )
        except RequestError as exc:
            raise start_error(self.name, exc) from exc
        except ConnectionClosed:
            raise StartError(self.name, "it ended before it answered `initialize`") from None
        result = _object(result)
        told = result.get("protocolVersion")
        self.protocol_version = told if isinstance(told, int) else version
        self.info = _object(result.get("agentInfo", result.get("info")))
        self.capabilities = _object(result.get("agentCapabilities", result.get("capabilities")))

    async def _open_session(self, like: Session | None) -> None:
        params: dict[str, Any] = {"cwd": os.getcwd(), "mcpServers": []}
        if like is not None:
            params["cwd"] = like.cwd or os.getcwd()
            params["mcpServers"] = [each for each in like.mcp_servers if self._can_reach(each)]
            extra = _object(self.capabilities.get("sessionCapabilities"))
            if like.additional_directories and "additionalDirectories" in extra:
                params["additionalDirectories"] = like.additional_directories
        id = _object(await self._connection.request("session/new", params)).get("sessionId")
        if not isinstance(id, str):
            raise RemoteProtocolError(self.name, "its answer to session/new has no `sessionId`")
        self.session_id = id

    def _can_reach(self, server: Mapping[str, Any]) -> bool:
        """Whether the agent supports the transport of an MCP server; logs those that it does not.

        A server over ACP is connected to the first chain only.
        """
        transport = server.get("type", "stdio")
        names = _object(self.capabilities.get("mcpCapabilities"))
        if self.protocol_version > 1:
            names = _object(_object(self.capabilities.get("session")).get("mcp"))
        reachable = transport == "stdio" or (transport != "acp" and bool(names.get(transport)))
        if not reachable:
            log.info(
                "MCP server not given to a second agent",
                agent=self.name,
                server=server.get("name"),
                transport=transport,
            )
        return reachable

    def _unread(self) -> int:
        return 0 if self._turn is None else self._turn.unread

    def _on_update(self, params: Any) -> None:
        if params.get("sessionId") != self.session_id:
            return
        if self._turn is not None:
            self._turn.take(params)
        elif isinstance(update := params.get("update"), dict):
            self._turns.take(update, trio.current_time())


@attrs.define(eq=False)
class _Turn:
    """A running turn: `take` gets its updates as they arrive, `deliver` passes them on in order."""

    agent: str
    """Name of the agent, for errors."""
    session_id: str
    unread: int = attrs.field(default=0, init=False)
    """Bytes of the updates that wait to be delivered."""
    _connection: AgentConnection
    _turns: SessionTurns[Any]
    """Those of the agent's session."""
    _collector: TurnCollector = attrs.field(
        default=attrs.Factory(
            lambda self: TurnCollector(self.session_id, self._turns), takes_self=True
        ),
        init=False,
    )
    _updates: deque[tuple[dict[str, Any], int]] = attrs.field(factory=deque, init=False)
    """With their sizes in bytes."""
    _result: dict[str, Any] | None = attrs.field(default=None, init=False)
    _error: Exception | None = attrs.field(default=None, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_ended(self) -> bool:
        return self._error is not None or self._collector.ended.is_set()

    @property
    def outcome(self) -> PromptTurn:
        """The turn, when it has ended. Raises the agent's error, or why there is no answer."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return PromptTurn(self._collector.stop_reason, self._collector.text, self._result)

    async def prompt(self, blocks: Sequence[Any]) -> None:
        """Send the prompt and wait for the answer, which need not be the end of the turn."""
        try:
            result = await self._connection.request(
                "session/prompt", {"sessionId": self.session_id, "prompt": blocks}
            )
            if not isinstance(result, dict):
                raise RemoteProtocolError(
                    self.agent, "its result of session/prompt is not an object"
                )
            self._result = result
            self._collector.answered(result)
        except (RequestError, ConnectionClosed, RemoteProtocolError) as exc:
            self._error = exc
            self._collector.answered(None)
        self._changed.set()

    def take(self, params: Mapping[str, Any]) -> None:
        """Take the params of a `session/update` of the session."""
        raw = encode(params)
        self._collector.take(raw)
        update = params.get("update")
        if isinstance(update, dict):
            size = len(raw or b"")
            self._updates.append((update, size))
            self.unread += size
            self._changed.set()

    async def deliver(self, on_update: UpdateCallback | None) -> None:
        """Call `on_update` with the updates of the turn, until it has ended."""
        while True:
            while self._updates:
                update, size = self._updates.popleft()
                self.unread -= size
                self._connection.made_room()
                if on_update is not None:
                    waiting = on_update(update)
                    if inspect.isawaitable(waiting):
                        await waiting
            if self.has_ended:
                return
            self._changed = trio.Event()
            await self._changed.wait()


@asynccontextmanager
async def open_second_agent(
    host: SecondAgentHost,
    source: AgentSource,
    *,
    like: Session | None,
    name: str | None,
    env: Mapping[str, str],
    handlers: Mapping[str, RequestHandler],
) -> AsyncIterator[SecondAgent]:
    """Start an agent and open its session; see `Plugin.open_agent`."""
    host.release_lane()
    version = 1 if like is None else like.protocol_version
    capabilities = {}
    if like is not None:
        announced = like.chain.client_capabilities
        capabilities = {each: announced[each] for each in _CAPABILITIES if each in announced}
    async with host.open_agent_chain(source, name=name, env=env) as (name, connection):
        agent = SecondAgent(name, connection, host)
        connection.unread = agent._unread
        connection.handlers["session/update"] = agent._on_update
        connection.handlers[_PERMISSION] = lambda params: _CANCELLED
        if like is not None:
            for method in _FORWARDED:
                connection.handlers[method] = partial(_forward, agent, like, method)
        for method, handler in handlers.items():
            connection.handlers[method] = partial(_call, agent, method, handler)
        await agent._initialize(version, capabilities)
        await agent._open_session(like)

        def cancel(params: bytes | None) -> bool:
            """Pass a `session/cancel` of the client on; it still reaches the first agent."""
            if like is not None and session_id_of(params) == like.id:
                agent._turns.cancel(trio.current_time())
                connection.notify("session/cancel", {"sessionId": agent.session_id})
            return False

        remove_tap = host.tap("client", "session/cancel", cancel)
        try:
            yield agent
        finally:
            remove_tap()


async def _forward(agent: SecondAgent, like: Session, method: str, params: dict[str, Any]) -> Any:
    """Send a request of the second agent to the client, for the session `like`."""
    if agent.protocol_version != like.protocol_version:
        raise RequestError(
            METHOD_NOT_FOUND,
            f"the client speaks protocol version {like.protocol_version}, this agent "
            f"{agent.protocol_version}: {method} cannot be forwarded",
        )
    return await agent._host.client.request(method, {**params, "sessionId": like.id})


async def _call(
    agent: SecondAgent, method: str, handler: RequestHandler, params: dict[str, Any]
) -> Any:
    """Call a handler of the plugin; an exception in it is logged and answered -32603."""
    try:
        result = handler(params)
        return await result if inspect.isawaitable(result) else result
    except RequestError:
        raise
    except Exception as exc:  # code of the plugin's author
        agent._host.handler_failed(exc, agent=agent.name, method=method)
        raise RequestError(INTERNAL_ERROR, f"Internal error: {describe(exc)}") from None


def start_error(name: str, exc: RequestError) -> StartError:
    """The error of a failed `initialize`, with the supervisor's report about the program."""
    data = _object(exc.data)
    return StartError(
        str(data.get("component", name)),
        str(data.get("reason", exc.message)),
        command=data.get("command", ()),
        status=data.get("exitStatus"),
        stderr_tail=data.get("stderr", ()),
        location=data.get("place"),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
