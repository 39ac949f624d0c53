"""Messages between a second agent and the client, for an agent that has sessions of the client.

The agent's messages go to the client in their order, requests among notifications. The answer to a
request that the plugin sends to the agent takes its place in that order, too: it is returned after
everything that the agent sent before it, and what follows waits until the handler has answered the
client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import attrs
import trio

from conductor.errors import RequestError
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error, error_to_exception
from conductor.proxy.conversion import decode_result, encode
from conductor.proxy.peers import ClientPeer

__all__ = ["AgentRelay", "RelayHost", "RelayedConnection", "Translation"]

Translation: TypeAlias = Callable[[str, Any], Any]
"""Takes method and params of a message of the agent; returns the params that the client gets."""

_MESSAGE_BYTES: Final = 200
"""Bytes of a message beside its params."""
_ANSWER_SECONDS: Final = 5.0
"""For a handler to answer the client after the agent has answered it."""


class RelayedConnection(Protocol):
    """The part of a connection to the agent that a relay uses."""

    async def request(
        self, method: str, params: Any = None, *, answered: Callable[[Any], None] | None = None
    ) -> Any: ...

    def made_room(self) -> None: ...


class RelayHost(Protocol):
    """The part of the runtime that a relay uses."""

    client: ClientPeer

    @property
    def answering(self) -> bool: ...

    def after_answer(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...


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

    connection: RelayedConnection
    host: RelayHost
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
