"""Several handlers of one method as one: each gets the message and a `forward` to the next.

The layers of a method run like middleware: the first gets the message first, its `forward` calls
the second, that of the last sends the message to the next component; results come back in the
opposite order. Messages travel between layers as `Body`, which is decoded at most once and keeps
its bytes while no layer changes it. A class is compiled once: each method has one `Handler`, with
the layers in their order, and the functions that read its messages and the answers to them.

Most messages are updates with a piece of text. A filter tells from their first bytes that a class
has no handler for them, so that they are forwarded without being decoded: 0.6 µs for an update of
100 bytes. It never misses an update of its kinds: members that occur twice or are written with
escapes, and updates with another order of members, pass the filter and are decoded.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import attrs

from conductor.errors import LocalProtocolError
from conductor.jsonrpc.messages import Payload
from conductor.proxy.annotations import version_of
from conductor.proxy.conversion import Body, answer_reader, encode, encode_edited, message_reader
from conductor.proxy.misfits import InvalidParams, passes_misfit

__all__ = [
    "Body",
    "Handler",
    "Layer",
    "Next",
    "Sender",
    "SentRequest",
    "UpdateFilter",
    "compose",
    "handler_layer",
    "location_of",
    "text_or_none",
    "update_filter",
]

Sender = Literal["client", "agent"]

SESSION_UPDATE: Final = "session/update"

UpdateFilter: TypeAlias = Callable[[Payload | None], bool]
"""Whether an update may be of one of the kinds."""

_head: Final = re.compile(
    rb'\{"sessionId":"[^"\\]*","update":\{(?:"messageId":"[^"\\]*",)?"sessionUpdate":"([^"\\]*)"'
)
"""The start of an update as most agents write it."""
_escaped: Final = re.compile(rb"\\u00(?:5[5fF]|[67][0-9a-fA-F])")
"""A letter of a kind or of `sessionUpdate`, escaped."""


@attrs.frozen(eq=False, repr=False)
class Handler:
    """One handler of a plugin class."""

    method: str
    function: Callable[..., Any]
    senders: tuple[Sender, ...]
    """Senders of the messages it handles: "client" (toward the agent), "agent", or both."""
    annotation: Any
    """Type of the message: a schema type, `dict`, `bytes` (raw JSON), or `Body`."""
    result: Any
    """Type of the result that `forward` returns; a schema type if the request has one."""
    takes_forward: bool
    location: str
    """`file:line` of the first of the author's functions that `function` calls."""
    accepts: UpdateFilter | None = None
    """The updates that it handles, the others are forwarded; `None`: all messages."""
    read: Callable[[bytes | None], Any] = attrs.field(init=False)
    """Decodes the raw params to `annotation`. Raises `ValueError` if they do not fit."""
    read_answer: Callable[[bytes | None], Any] = attrs.field(init=False)
    """Decodes the raw result that `forward` returns."""
    write: Callable[[Any], bytes | None] = attrs.field(init=False)
    """Encodes changed params, or the result that the author returns."""
    is_decoded: bool = attrs.field(init=False)
    """Whether `read` decodes the params to a value that the author may change."""
    no_answer: Any = attrs.field(init=False)
    """What the `forward` of a notification returns."""

    @read.default
    def _reader(self) -> Callable[[bytes | None], Any]:
        return message_reader(self.annotation)

    @read_answer.default
    def _answer_reader(self) -> Callable[[bytes | None], Any]:
        return answer_reader(self.method, self.result)

    @write.default
    def _writer(self) -> Callable[[Any], bytes | None]:
        return attrgetter("raw") if self.annotation is Body else encode

    @is_decoded.default
    def _decodes(self) -> bool:
        return self.annotation is not bytes and self.annotation is not Body

    @no_answer.default
    def _nothing(self) -> Any:
        return self.read_answer(None)

    @property
    def version(self) -> int | None:
        """The version of the protocol that the type of the message is of; `None` if it is plain."""
        return version_of(self.annotation)


Next: TypeAlias = Callable[[Body], Awaitable[Body]]
"""Sends a message to the next layer or component; returns the result (of a request)."""


@attrs.frozen
class Layer:
    """One handler of a method."""

    handle: Callable[..., Awaitable[Body]]
    """Called with the plugin, the params and the next layer, as `call_next`."""
    location: str = ""
    """`file:line` of the author's function."""
    observer: str = attrs.field(default="", kw_only=True)
    """`file:line` of the author's first function that it calls beside the message."""
    kinds: frozenset[str] | None = None
    """The kinds of updates that it handles; `None`: all messages."""
    accepts: UpdateFilter | None = attrs.field(init=False)

    @accepts.default
    def _filter(self) -> UpdateFilter | None:
        return None if self.kinds is None else update_filter(self.kinds)


def compose(method: str, sender: Sender, layers: Sequence[Layer]) -> Handler:
    """Return one handler for these layers; without any, it forwards its messages."""

    inner_first = layers[::-1]
    others = [each for each in inner_first if each.kinds is None]
    kinds = {kind for layer in layers for kind in layer.kinds or ()}
    of_kind = {
        kind.encode(): [each for each in inner_first if each.kinds is None or kind in each.kinds]
        for kind in kinds
    }

    def start(plugin: Any, body: Body, forward: Next) -> Awaitable[Body]:
        path = others
        if of_kind:
            kind = kind_of(body.raw or b"")
            if kind is not None:
                path = of_kind.get(kind, others)
            else:  # it is not clear from the first bytes
                path = [e for e in inner_first if e.accepts is None or e.accepts(body.raw)]
        call_next = forward
        for layer in path:
            call_next = partial(layer.handle, plugin, call_next=call_next)
        return call_next(body)

    places = [each.location for each in layers] + [each.observer for each in layers]
    return Handler(
        method,
        start,
        (sender,),
        Body,
        Body,
        takes_forward=True,
        location=next(filter(None, places), None) or location_of(start),
        accepts=_accepts_any(layers) if method == SESSION_UPDATE else None,
    )


def _accepts_any(layers: Sequence[Layer]) -> UpdateFilter | None:
    """The filter of several layers: an update that one of them accepts."""
    kinds: set[str] = set()
    for layer in layers:
        if layer.kinds is None:
            return None
        kinds |= layer.kinds
    return update_filter(kinds)


def handler_layer(handler: Handler) -> Layer:
    """The layer of an `@on` handler."""
    function, read = handler.function, handler.read

    async def handle(plugin: Any, body: Body, call_next: Next) -> Body:
        try:
            message = read(body.raw)
        except ValueError as exc:
            if not plugin.answering and passes_misfit(plugin, handler, body.raw, exc):
                return await call_next(body)
            if plugin.on_error == "pass":
                raise
            raise InvalidParams(str(exc)) from None
        if not handler.takes_forward:
            return Body(encode(await function(plugin, message)))

        async def forward(changed: Any = None) -> Any:
            raw = body.raw
            if changed is not None:
                raw = encode(changed)
            elif handler.is_decoded:
                raw = encode_edited(raw, message, read)
            answer = await call_next(body if raw is body.raw else Body(raw))
            return handler.read_answer(answer.raw)

        return Body(encode(await function(plugin, message, forward)))

    return Layer(handle, handler.location)


def location_of(function: Any) -> str:
    """`file:line` of a function."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


class SentRequest:
    """A request that the handler of an event may forward, and the last answer to it."""

    __slots__ = ("_call_next", "_edited", "answer")

    def __init__(self, call_next: Next, edited: Callable[[Any], Body]) -> None:
        self._call_next = call_next
        self._edited = edited
        """Makes the request of what the author gives to `forward`."""
        self.answer: Body | None = None

    async def forward(self, changed: Any = None) -> Any:
        """Send the request; returns the result, which the handler may change."""
        self.answer = await self._call_next(self._edited(changed))
        return self.answer.decode()

    def answered(self, function: Callable[..., Any], value: Any, instead: str) -> Body:
        """The body of the result that a handler has returned: a JSON object in every version of the
        protocol.

        `instead` tells the author what to write. The answer of the peer is passed on also if it is
        not an object. Raises `LocalProtocolError` for other values.
        """
        answer = self.answer
        if answer is not None and value == ({} if answer.raw is None else answer.value):
            return answer
        _check_awaited(function, value)
        body = None if value is None else Body.of(value)
        if body is None or body.raw is None or not body.raw.lstrip().startswith(b"{"):
            raise _wrong(function, value, f"the answer to a request: write {instead}")
        return body


def text_or_none(function: Callable[..., Any], value: Any) -> str | None:
    """The `str` or `None` that a handler returned. Raises `LocalProtocolError` for other types."""
    _check_awaited(function, value)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(function, value, "a str or None")


def _check_awaited(function: Callable[..., Any], value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()
        raise _wrong(function, value, "its result: write `return await …`")


def _wrong(function: Callable[..., Any], value: Any, wanted: str) -> LocalProtocolError:
    given = "nothing" if value is None else f"a value of type {type(value).__name__}"
    return LocalProtocolError(f"{function.__qualname__} returned {given}, not {wanted}", function)


def kind_of(raw: bytes) -> bytes | None:
    """The kind of an update; `None` if it cannot be told from the first bytes."""
    head = _head.match(raw)
    if head is None or raw.count(b'"sessionUpdate"') != 1:
        return None
    if raw.find(b"\\") >= 0 and _escaped.search(raw) is not None:
        return None
    return head[1]


def update_filter(kinds: Iterable[str]) -> UpdateFilter:
    """Return the filter of these kinds."""
    wanted = frozenset(kind.encode() for kind in kinds)

    def passes(params: Payload | None) -> bool:
        raw = params if type(params) is bytes else bytes(params or b"")
        if raw.find(b"\\") >= 0 and _escaped.search(raw) is not None:
            return True
        head = _head.match(raw)
        if head is not None and raw.count(b'"sessionUpdate"') == 1:
            return head[1] in wanted
        return any(raw.find(kind) >= 0 for kind in wanted)

    return passes
