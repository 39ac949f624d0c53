"""`Proxy` and `Agent`: what an author subclasses.

An instance serves one chain. Its options are its fields; its handlers are marked with `@on`;
whatever it does not handle passes by. `self.client` and `self.agent` are the two peers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from conductor.errors import LocalProtocolError
from conductor.proxy.annotations import DeclarationError
from conductor.proxy.handlers import Handler, annotations_of, check_fields, collect_handlers
from conductor.proxy.peers import AgentPeer, ClientPeer, NotificationTap, ResponseCallback
from conductor.proxy.prompt_turn import is_turn_output
from conductor.proxy.restart_hook import with_restart_hook
from conductor.proxy.tool_handlers import with_tools

__all__ = ["Agent", "Forward", "Plugin", "Proxy", "Runtime"]

Forward: TypeAlias = Callable[..., Awaitable[Any]]
"""What a handler gets as `forward`: `await forward()` passes the message on as it came, byte for
byte; `await forward(message)` passes on what it is given. Of a request it returns the result."""


class Runtime(Protocol):
    """The chain that a plugin runs in, as the plugin sees it."""

    client: ClientPeer
    agent: AgentPeer

    def release_lane(self) -> None: ...

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    def made_room(self) -> None: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> ResponseCallback: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]:
        """Show a tap every such notification of that peer; returns what ends that."""


_RESERVED = (
    *("client", "agent", "release_lane", "start_soon", "answering"),
    *("defer", "wait_room", "made_room", "muted"),
)
"""What plugins use, and do not override."""


def _check_reserved(cls: type) -> None:
    """Raise `DeclarationError` for a field, or a method, that would hide what we provide."""
    for name in _RESERVED:
        providers = [base for base in cls.__mro__ if name in vars(base)]
        provider = next((base for base in providers if base.__module__ == __name__), None)
        if provider is None:
            continue
        annotated = [b for b in cls.__mro__ if name in annotations_of(b) and b is not provider]
        hiding = next((base for base in (*annotated, *providers) if base is not provider), None)
        if hiding is not None:
            raise DeclarationError(
                f"{hiding.__name__}.{name} would hide {provider.__name__}.{name}, which plugins "
                f"use; rename it (an option `{name}` can stay: "
                f'`{name}_: … = attrs.field(alias="{name}")`)'
            )


class Plugin:
    """What proxies and agents in Python have in common."""

    __slots__ = ("__weakref__", "_acp_runtime", "_acp_sessions", "_acp_toolbox")

    _acp_runtime: Runtime
    _acp_sessions: Any
    _acp_toolbox: Any

    on_error: ClassVar[Literal["fail", "pass"]] = "fail"
    """What becomes of a message whose handler raised: a request is answered -32603 and a
    notification is dropped ("fail"), or the message is passed on unchanged ("pass")."""

    required: ClassVar[bool] = False
    """Whether a chain must not go on without this plugin: it is never bypassed."""

    _acp_handlers: ClassVar[tuple[Handler, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_fields(cls)
        _check_reserved(cls)
        if not isinstance(cls.required, bool):
            raise DeclarationError(
                f"{cls.__name__}.required is no option: write `required = True`, without an "
                f"annotation"
            )
        if cls.on_error not in ("fail", "pass"):
            raise DeclarationError(f'{cls.__name__}.on_error must be "fail" or "pass"')
        cls._acp_handlers = with_tools(cls, with_restart_hook(cls, collect_handlers(cls)))

    @property
    def client(self) -> ClientPeer:
        """The peer toward the client."""
        return self._runtime("client").client

    def release_lane(self) -> None:
        """Let the next message of this handler's lane in before the handler ends (lane rule 4)."""
        self._runtime("release_lane()").release_lane()

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `await function(*args)` beside the lanes, until it ends or the chain does."""
        self._runtime("start_soon()").start_soon(function, *args)

    @property
    def answering(self) -> bool:
        """Whether the handler that runs here works on a request, not on a notification."""
        return self._runtime("answering").answering

    def defer(self, cancelled: Callable[[], None]) -> ResponseCallback:
        """Answer the handler's request later, by calling what this returns with a raw result or a
        raw error. What the handler returns is not used. `cancelled` is called when the request is
        cancelled; it is to be answered all the same.
        """
        return self._runtime("defer()").defer(cancelled)

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        """Override it to name what is allowed in the options but probably a mistake.

        Each is the name of an option and a text, which `acp-conductor check` shows with the
        option's place in the chain file.
        """
        return ()

    async def wait_room(self) -> None:
        """Wait while the client, or a proxy, has too much to read.

        Whatever brings messages from outside of the chain (a socket, a queue) calls it before it
        reads on, so that a slow reader slows it down and fills no memory.
        """
        await self._runtime("wait_room()").wait_room()

    def unread_bytes(self) -> int:
        """Override it to tell what waits outside of the chain, in a socket, say, for somebody to
        read it who is sent it from the chain: while that is too much, its senders are not read.

        Call `made_room()` when it has become less.
        """
        return 0

    def made_room(self) -> None:
        """Let those be read who were not because of `unread_bytes`."""
        self._runtime("made_room()").made_room()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Around the plugin's whole life: override it to open and close what the plugin needs.

        Handlers run between its `yield` and its end; no requests can be sent before and after.
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
    """Sits between a client and an agent; subclass it, mark handlers with `@on`."""

    __slots__ = ()

    @property
    def agent(self) -> AgentPeer:
        """The peer toward the agent."""
        return self._runtime("agent").agent

    def mcp_servers(self) -> Sequence[Any]:
        """Override it to offer whole MCP servers: `Server` or `MCPServer` objects of the SDK.

        It is called for every connection, so that each can have servers of its own.
        """
        return ()

    def has_tools_for(self, session: dict[str, Any]) -> bool:
        """Override it to choose the sessions that get the tools; given is what sets one up."""
        return True

    async def on_restart(self, sessions: Sequence[str]) -> None:
        """Override it to get back what was lost, when the proxy is started again after a failure.

        It is called at the end of the handshake: client and agent can be asked, and no message has
        come yet. `sessions` are the ids of those that are open; the request that set each of them
        up comes next, and what you pass on of it is not sent to the agent again. Has
        `start_timeout` to return; what it raises fails the restart.
        """

    @asynccontextmanager
    async def muted(self, session_id: str) -> AsyncIterator[None]:
        """Keep from the client what happens in a session, for a prompt that it is not to see.

        Its `session/update`s are dropped before a handler sees them, except those that tell what
        the session is like from now on: its commands, modes, options, title and usage. Questions
        of the agent's, such as for a permission, still pass.
        """

        def hide(params: bytes | None) -> bool:
            return is_turn_output(params, session_id)

        remove = self._runtime("muted()").tap("agent", "session/update", hide)
        try:
            yield
        finally:
            remove()


class Agent(Plugin):
    """The end of a chain; a request that it does not handle is answered -32601."""

    __slots__ = ()
