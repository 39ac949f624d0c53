"""`Proxy` and `Agent`: what an author subclasses.

An instance serves one chain. Its options are its fields; its handlers are marked with `@on`;
whatever it does not handle passes by. `self.client` and `self.agent` are the two peers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, Protocol

from conductor.errors import LocalProtocolError
from conductor.proxy.declare import DeclarationError, Handler, collect
from conductor.proxy.peers import Answered, Peer

__all__ = ["Agent", "Plugin", "Proxy", "Runtime"]


class Runtime(Protocol):
    """The chain that a plugin runs in, as the plugin sees it."""

    client: Peer
    agent: Peer

    def release_lane(self) -> None: ...

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    @property
    def answering(self) -> bool: ...

    def defer(self, cancelled: Callable[[], None]) -> Answered: ...


class Plugin:
    """What proxies and agents in Python have in common."""

    __slots__ = ("__weakref__", "_acp_runtime")

    _acp_runtime: Runtime

    on_error: ClassVar[Literal["fail", "pass"]] = "fail"
    """What becomes of a message whose handler raised: a request is answered -32603 and a
    notification is dropped ("fail"), or the message is passed on unchanged ("pass")."""

    _acp_handlers: ClassVar[tuple[Handler, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            if isinstance(value, list | dict | set) and name in vars(cls).get(
                "__annotations__", {}
            ):
                raise DeclarationError(
                    f"{cls.__name__}.{name}: a mutable default would be shared by all instances; "
                    f"write `= attrs.field(factory={type(value).__name__})`"
                )
        cls._acp_handlers = collect(cls)

    @property
    def client(self) -> Peer:
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

    def defer(self, cancelled: Callable[[], None]) -> Answered:
        """Answer the handler's request later, by calling what this returns with a raw result or a
        raw error. What the handler returns is not used. `cancelled` is called when the request is
        cancelled; it is to be answered all the same.
        """
        return self._runtime("defer()").defer(cancelled)

    async def wait_room(self) -> None:
        """Wait while the client, or a proxy, has too much to read.

        Whatever brings messages from outside of the chain (a socket, a queue) calls it before it
        reads on, so that a slow reader slows it down and fills no memory.
        """
        await self._runtime("wait_room()").wait_room()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Around the plugin's whole life: override it to open and close what the plugin needs."""
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
    def agent(self) -> Peer:
        """The peer toward the agent."""
        return self._runtime("agent").agent


class Agent(Plugin):
    """The end of a chain; a request that it does not handle is answered -32601."""

    __slots__ = ()
