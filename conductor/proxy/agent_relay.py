"""The connection to a second agent, and the relay for one that has sessions of the client.

`SecondAgent` speaks ACP over an `AgentConnection`; `SecondAgentHost`, the runtime, starts and stops
the chain.

The messages of a relayed agent go to the client in their order, requests among notifications. The
answer to a request that the plugin sends to the agent takes its place in that order, too: it is
returned after everything that the agent sent before it, and what follows waits until the handler
has answered the client.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import attrs
import trio

from conductor.errors import RequestError
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error, error_to_exception
from conductor.proxy.conversion import decode_result, encode
from conductor.proxy.peers import ClientPeer, NotificationTap

__all__ = [
    "AgentConnection",
    "AgentRelay",
    "AgentSource",
    "RequestHandler",
    "SecondAgentHost",
    "Translation",
]

AgentSource: TypeAlias = str | os.PathLike[str] | Sequence[str]
"""The path of a chain file, or the argv of a program."""
RequestHandler: TypeAlias = Callable[[dict[str, Any]], Any]
"""Takes the params of a request; returns the result, or a coroutine of it."""
Translation: TypeAlias = Callable[[str, Any], Any]
"""Takes method and params of a message of the agent; returns the params that the client gets."""

_MESSAGE_BYTES: Final = 200
"""Bytes of a message beside its params."""
_ANSWER_SECONDS: Final = 5.0
"""For a handler to answer the client after the agent has answered it."""


class AgentConnection(Protocol):
    """The client's end of a JSON-RPC connection to a running chain."""

    handlers: dict[str, RequestHandler]
    fallback: Any
    """`FallbackHandlers` of messages without a handler."""
    unread: Callable[[], int]
    """Returns the bytes that were received and not yet handled; too many pause the reading."""

    async def request(
        self, method: str, params: Any = None, *, answered: Callable[[Any], None] | None = None
    ) -> Any: ...

    def notify(self, method: str, params: Any = None) -> None: ...

    def made_room(self) -> None:
        """Signal that `unread()` has decreased."""


class SecondAgentHost(Protocol):
    """Interface of the runtime for second agents."""

    client: ClientPeer

    @property
    def answering(self) -> bool: ...

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    def release_lane(self) -> None: ...

    def tap(
        self, source: Literal["client", "agent"], method: str, tap: NotificationTap
    ) -> Callable[[], None]: ...

    def open_agent_chain(
        self, source: AgentSource | None, *, name: str | None, env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[tuple[str, AgentConnection]]:
        """Run a chain for the duration of the block; yields the agent's name and a connection.

        Without a source, the chain is another process of the agent of this one.
        """

    def handler_failed(self, exc: BaseException, **fields: str) -> None:
        """Log an exception of a handler that the lanes do not call. `fields` name the handler."""


@attrs.define(eq=False)
class _OrderMark:
    """A place in the order of messages; nothing after it is sent before it is released."""

    reached: trio.Event = attrs.field(factory=trio.Event)
    released: trio.Event = attrs.field(factory=trio.Event)

    async def release(self) -> None:
        self.released.set()


@attrs.define(eq=False)
class _RelayedRequest:
    """A request of the agent that is not answered."""

    method: str
    params: Any
    answered: trio.Event = attrs.field(factory=trio.Event)
    result: bytes | None = None
    error: bytes | None = None
    cancel: Callable[[], None] = lambda: None
    is_cancelled: bool = False

    def answer(self, result: bytes | None, error: bytes | None) -> None:
        self.result, self.error = result, error
        self.answered.set()


_Item: TypeAlias = tuple[str, Any, int] | _RelayedRequest | _OrderMark
"""A queued item: a notification with its size, a request, or a mark."""


@attrs.define(eq=False)
class AgentRelay:
    """The messages of one agent; `FallbackHandlers` of its connection."""

    connection: AgentConnection
    host: SecondAgentHost
    translate: Translation
    _queue: deque[_Item] = attrs.field(factory=deque, init=False)
    _size: int = attrs.field(default=0, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _held: WeakKeyDictionary[trio.lowlevel.Task, _OrderMark] = attrs.field(
        factory=WeakKeyDictionary, init=False
    )
    """The mark of the last answer, by the task of the handler."""
    _has_ended: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        """Send what the agent sends, until it is cancelled: the rest is dropped."""
        try:
            while True:
                while self._queue:
                    await self._send(self._queue.popleft())
                self._changed = trio.Event()
                await self._changed.wait()
        finally:
            self._has_ended = True
            for item in self._queue:
                _drop(item)
            self._queue.clear()

    def unread(self) -> int:
        """Bytes of notifications that the client has not got."""
        return self._size

    async def request(self, method: str, params: Any) -> Any:
        """Send a request to the agent; returns its result, in order. Raises as `SecondAgent`."""
        task, mark = trio.lowlevel.current_task(), _OrderMark()
        if (last := self._held.pop(task, None)) is not None:
            last.released.set()  # a handler that asks again has not answered the client with it
        try:
            result = await self.connection.request(
                method, params, answered=lambda _: self._add(mark)
            )
            await mark.reached.wait()
        except RequestError:
            self._add(mark)
            mark.released.set()
            await mark.reached.wait()
            raise
        except BaseException:
            mark.released.set()
            raise
        if self.host.answering:
            self._held[task] = mark
            self.host.after_answer(mark.release)
        else:
            mark.released.set()
        return result

    # -- FallbackHandlers --------------------------------------------------------------------------

    def on_any_notification(self, method: str, params: Any) -> None:
        size = len(encode(params) or b"") + _MESSAGE_BYTES
        self._size += size
        self._add((method, params, size))

    async def on_any_request(self, method: str, params: Any) -> Any:
        asked = _RelayedRequest(method, params)
        self._add(asked)
        try:
            await asked.answered.wait()
        except trio.Cancelled:
            asked.is_cancelled = True
            asked.cancel()
            raise
        if asked.error is not None:
            raise error_to_exception(asked.error)
        return decode_result(asked.result, Any)

    # ----------------------------------------------------------------------------------------------

    def _add(self, item: _Item) -> None:
        if self._has_ended:
            _drop(item)
            return
        self._queue.append(item)
        self._changed.set()

    async def _send(self, item: _Item) -> None:
        client = self.host.client
        match item:
            case _OrderMark():
                item.reached.set()
                with trio.move_on_after(_ANSWER_SECONDS):  # a handler that fails releases nothing
                    await item.released.wait()
            case _RelayedRequest():
                if not item.is_cancelled:
                    params = self.translate(item.method, item.params)
                    item.cancel = client.ask(item.method, params, item.answer)
            case method, params, size:
                await client.notify(method, self.translate(method, params))
                self._size -= size
                self.connection.made_room()


def _drop(item: _Item) -> None:
    """Let nothing wait for what is not sent any more."""
    match item:
        case _OrderMark():
            item.reached.set()
        case _RelayedRequest():
            item.answer(None, encode_error(INTERNAL_ERROR, "The agent is stopping"))
