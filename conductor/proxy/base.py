"""`Proxy` and `Agent`: the base classes of plugins.

An instance serves one chain. Its fields are its options, its methods marked with `@on` are its
handlers; a message without a handler is forwarded byte for byte. `self.client` and `self.agent`
send messages to the two neighbours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from conductor.errors import LocalProtocolError
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.class_checks import (
    check_event_names,
    check_fields,
    check_lifespan,
    check_reserved,
    check_restart_hook,
    check_versions,
    missing_attribute,
)
from conductor.proxy.handlers import VersionFit, handlers_of
from conductor.proxy.middleware import Handler
from conductor.proxy.peers import (
    AgentPeer,
    ClientPeer,
    DeferredAnswer,
    NotificationTap,
    is_turn_output,
)
from conductor.proxy.second_agent import (
    AgentSource,
    RequestHandler,
    SecondAgent,
    SecondAgentHost,
    open_second_agent,
)
from conductor.proxy.sessions import PluginSessions, Session, chain_info, session_of

__all__ = ["Agent", "Effect", "Placement", "Plugin", "Proxy", "Runtime"]

Effect: TypeAlias = Literal["adds_text", "serves_client", "opens_agents", "maps_paths"]

_RESERVED = (
    *("client", "agent", "release_lane", "start_soon", "answering"),
    *("defer", "wait_room", "made_room", "muted", "open_agent"),
)
"""Names that a plugin uses and must not override."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a proxy, and on which side of the effects of others it must stand.

    `check` and `doctor` compare the placements of a chain: neither has a list of proxies.
    """

    effects: Set[Effect] = frozenset()
    """Its effects. `adds_text`: it puts texts into prompts. `serves_client`: it answers the agent's
    requests for files or terminals. `opens_agents`: it gives prompts to agents of its own, which
    the proxies behind it do not see. `maps_paths`: proxies behind it see other paths than those of
    this machine."""
    after: Mapping[Effect, str] = {}
    """Effects of proxies that must stand before it, nearer to the client; each with the
    consequence if one stands behind it."""
    before: Mapping[Effect, str] = {}
    """Effects of proxies that must stand behind it, nearer to the agent; each with the
    consequence if one stands before it."""


class Runtime(SecondAgentHost, Protocol):
    """The interface of a running chain to its plugin, behind the methods of `Proxy` and `Agent`.

    `conductor.plugins` implements it; this protocol keeps the author's API free of imports from
    there.
    """

    agent: AgentPeer
    required: bool

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    def made_room(self) -> None: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> DeferredAnswer: ...

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]:
        """Call `tap` with every notification `method` from `source`; returns a function that
        removes the tap."""


class Plugin:
    """Base class of `Proxy` and `Agent`."""

    __slots__ = ("__weakref__", "_acp_chain", "_acp_runtime", "_acp_sessions", "_acp_toolbox")

    _acp_chain: Any
    _acp_runtime: Runtime
    _acp_sessions: PluginSessions
    _acp_toolbox: Any

    on_error: ClassVar[Literal["fail", "pass"]] = "fail"
    """Treatment of a message after its handler raised an exception: with "fail" a request is
    answered -32603 and a notification is dropped, with "pass" the message is forwarded
    unchanged."""

    required: ClassVar[bool] = False
    """Whether the chain cannot run without this plugin: a required plugin is never bypassed."""

    versions: ClassVar[Set[int] | tuple[int, ...] | None] = None
    """The versions of the protocol that the proxy is for, such as `{1}` or `(1,)`; `None`: all.

    If `initialize` negotiates another one, the proxy is bypassed, with a warning in the log: every
    message passes it unchanged, and its tools are not offered. A `required` proxy refuses instead:
    `initialize` is answered with an error. An agent answers `initialize` itself, and must not set
    it."""

    _acp_handlers: ClassVar[tuple[Handler, ...]] = ()
    _acp_version_fits: ClassVar[dict[int, VersionFit]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_fields(cls)
        check_reserved(cls, _RESERVED, __name__)
        if not isinstance(cls.required, bool):
            raise DeclarationError(
                f"{cls.__name__}.required is not an option: write `required = True`, without an "
                f"annotation"
            )
        check_event_names(cls)
        if cls.on_error not in ("fail", "pass"):
            raise DeclarationError(f'{cls.__name__}.on_error must be "fail" or "pass"')
        if cls.versions is not None:
            check_versions(cls, is_proxy=issubclass(cls, Proxy))
        check_lifespan(cls)
        check_restart_hook(cls, is_proxy=hasattr(cls, "agent"))
        cls._acp_handlers = handlers_of(cls)
        cls._acp_version_fits = {}

    if not TYPE_CHECKING:  # for which any options would do, and every name be an attribute

        def __new__(cls, *options: object, **named: object) -> Plugin:
            plugin = super().__new__(cls)
            plugin._acp_sessions = PluginSessions()
            return plugin

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_attribute(type(self), name), name=name, obj=self)

    @property
    def client(self) -> ClientPeer:
        """Sends messages toward the client."""
        return self._runtime("client").client

    def release_lane(self) -> None:
        """Let the next message into this handler's lane before the handler ends (lane rule 4)."""
        self._runtime("release_lane()").release_lane()

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `await function(*args)` outside the lanes; it is cancelled when the chain ends."""
        self._runtime("start_soon()").start_soon(function, *args)

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `await function(*args)` once the running handler's request has been answered.

        The handler's lane is held meanwhile, so what the function sends comes before all later
        messages of the lane. It does not run if the answer is an error.
        """
        self._runtime("after_answer()").after_answer(function, *args)

    def open_agent(
        self,
        source: AgentSource,
        *,
        like: Session | None = None,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        handlers: Mapping[str, RequestHandler] | None = None,
    ) -> AbstractAsyncContextManager[SecondAgent]:
        """Start another agent for the duration of an `async with` block; yields a `SecondAgent`.

        `source` is the path of a chain file, or the argv of a program that gets the variables `env`
        in addition. It is supervised like a component of the chain: its stderr is in the log with
        its name (`name`, by default derived from the source), and it stops in order at the end of
        the block, also if the handler is cancelled or the chain ends.

        The agent has one session, with the working directory and the MCP servers of the session
        `like` (but those over ACP). Its permission requests, elicitations, file and terminal
        requests go to the client for that session, and a `session/cancel` of that session reaches
        it too. `handlers` answer requests by method in place of the client: functions, `async` or
        not, from the params to the result. Without `like` and a handler, permission requests are
        answered `cancelled` and all others refused.

        A handler that opens an agent releases its lane. Raises `ChainFileError` for mistakes in the
        chain file, `StartError` if the agent does not start, and `RequestError` if it refuses the
        session, for example -32000 if it requires a login.
        """
        return open_second_agent(
            self._runtime("open_agent()"),
            source,
            like=like,
            name=name,
            env=env or {},
            handlers=handlers or {},
        )

    @property
    def protocol_version(self) -> int:
        """The version of the protocol that `initialize` has negotiated; 1 before."""
        return chain_info(self).protocol_version

    @property
    def client_info(self) -> Mapping[str, Any]:
        """Name and version of the client, from `initialize`."""
        return chain_info(self).client_info

    @property
    def agent_info(self) -> Mapping[str, Any]:
        """Name and version of the agent, from `initialize`."""
        return chain_info(self).agent_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client, as plain JSON."""
        return chain_info(self).client_capabilities

    @property
    def agent_capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the agent, as plain JSON."""
        return chain_info(self).agent_capabilities

    def session_by_id(self, id: str) -> Session:
        """The session with this id, for an `@on` handler.

        Raises `LocalProtocolError` in a class without event handlers: it keeps no sessions.
        """
        self._runtime("session_by_id()")
        if not hasattr(type(self), "_acp_session_objects"):
            raise LocalProtocolError(
                f"{type(self).__name__}.session_by_id() needs an event handler in the class, such "
                "as @on_session: without one, sessions are not recorded"
            )
        return session_of(self, id)

    @property
    def answering(self) -> bool:
        """Whether the running handler handles a request (not a notification)."""
        return self._runtime("answering").answering

    def defer(self, cancelled: Callable[[], None]) -> DeferredAnswer:
        """Answer the handler's request after the handler has returned.

        Returns the callback that answers the request; call it once with a result and `None`, or
        with `None` and an error object. Both are raw JSON, or a value that is encoded as the return
        value of a handler. The return value of the handler is ignored. `cancelled` is called when
        the request is cancelled; a cancelled request must still be answered.
        """
        return self._runtime("defer()").defer(cancelled)

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        """Return warnings about options that are valid but probably a mistake. Override it.

        Each warning is an option name and a text; `acp-conductor check` shows it with the location
        of the option in the chain file.
        """
        return ()

    async def wait_room(self) -> None:
        """Wait while the write buffer of the client or of a proxy is above the high watermark.

        Code that brings messages into the chain from a source outside of it (a socket, a queue)
        calls this before it reads more, so that a slow reader slows the source down and buffers
        stay bounded.
        """
        await self._runtime("wait_room()").wait_room()

    def unread_bytes(self) -> int:
        """Return the bytes that this plugin has queued for a reader outside of the chain.

        Override it in a plugin that writes messages of the chain to a socket, for example. While
        the number is above the high watermark, client and agent are not read. Call `made_room()`
        when it has decreased.
        """
        return 0

    def made_room(self) -> None:
        """Signal that `unread_bytes()` has decreased: paused reads are checked again."""
        self._runtime("made_room()").made_room()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Context of the plugin's whole life. Override it to open and close resources.

        Handlers run while the context is entered; before and after, no requests can be sent.
        """
        yield

    def _runtime(self, what: str) -> Runtime:
        try:
            return self._acp_runtime
        except AttributeError:
            raise LocalProtocolError(
                f"{type(self).__name__}.{what} works only while the plugin runs in a chain"
            ) from None


class Proxy(Plugin):
    """Base class of proxies, between a client and an agent. Mark handlers with `@on`."""

    __slots__ = ()

    @property
    def agent(self) -> AgentPeer:
        """Sends messages toward the agent."""
        return self._runtime("agent").agent

    def mcp_servers(self, session: Session) -> Sequence[Any] | Awaitable[Sequence[Any]]:
        """Return further MCP servers for a session that is set up. Override it, with or without
        `async`.

        A server is its declaration, a dict with `name` and `command` or `url` or a schema type, or
        a `Server` or `MCPServer` object of the MCP SDK, which runs in this process. They are added
        to those that the client declares in `session/new`, `load`, `resume` and `fork`; one with a
        name that is taken is left out with a warning. `session` is a `Session` with `cwd`,
        `opened_by` and the client's `mcp_servers`; its `id` is empty in `session/new` and
        `session/fork`. An exception is the answer to the request.
        """
        return ()

    def placement(self) -> Placement:
        """Return what matters for the place of this proxy in a chain. Override it.

        `acp-conductor check` and `doctor` warn of proxies on the wrong side of each other.
        """
        return Placement()

    def has_tools_for(self, session: dict[str, Any]) -> bool:
        """Return whether a session gets the `@tool` methods of this proxy. Override it.

        `session` holds the params of the session set-up request.
        """
        return True

    async def on_restart(self, sessions: Sequence[str]) -> None:
        """Rebuild state after the proxy was restarted because of a failure. Override it.

        Called at the end of the handshake: requests can be sent to client and agent, and no other
        message has arrived yet. `sessions` are the ids of the open sessions; the set-up request of
        each is replayed next, and forwarding it does not send it to the agent again. Must return
        within `start_timeout`; an exception fails the restart.
        """

    @asynccontextmanager
    async def muted(self, session_id: str) -> AsyncIterator[None]:
        """Hide the updates of a session from the client, during a prompt of the proxy's own.

        `session/update` notifications of the session are dropped before handlers see them, except
        those that change session state: commands, modes, options, title and usage. Requests of the
        agent, such as `session/request_permission`, still pass.
        """

        def hide(params: bytes | None) -> bool:
            return is_turn_output(params, session_id)

        remove = self._runtime("muted()").tap("agent", "session/update", hide)
        try:
            yield
        finally:
            remove()


class Agent(Plugin):
    """Base class of agents, the end of a chain. A request without a handler is answered -32601."""

    __slots__ = ()
