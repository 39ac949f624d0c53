"""Several handlers of one method as one: each gets the message and a `forward` to the next.

The layers of a method run like middleware: the first gets the message first, its `forward` calls
the second, that of the last sends the message to the next component; results come back in the
opposite order. Messages travel between layers as `Body`, which is decoded at most once and keeps
its bytes while no layer changes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from conductor.acp import session_id_of
from conductor.proxy.conversion import (
    decode_answer,
    decode_params,
    encode,
    encode_edited,
)
from conductor.proxy.misfits import InvalidParams, passes_misfit
from conductor.proxy.update_kinds import UpdateFilter, update_filter

__all__ = [
    "Body",
    "Layer",
    "Next",
    "accepts_any",
    "compose",
    "handler_layer",
    "location_of",
]


class Body:
    """The params or the result of a message, as raw JSON and, once needed, as a value."""

    __slots__ = ("_session_id", "_value", "is_command", "raw")

    def __init__(self, raw: bytes | None, value: Any = None) -> None:
        self.raw: bytes | None = raw
        """Raw JSON; `None` if it is absent."""
        self._value = value
        self._session_id: str | None = None
        self.is_command: bool = False
        """Whether a prompt is a slash command of a proxy: it is not a turn."""

    @classmethod
    def of(cls, value: Any) -> Body:
        """The body that `value` encodes to."""
        return cls(encode(value), value)

    def edited(self, value: Any) -> Body:
        """This body, or a new one if `value`, which was decoded from it, has been changed."""
        if self.raw is not None and self.value == value:
            return self
        return Body.of(value)

    @property
    def session_id(self) -> str | None:
        """The session that it is about, or `None`. Read once: takes 0.2 ms for 1 MiB."""
        if self._session_id is None:
            self._session_id = session_id_of(self.raw)
        return self._session_id

    @property
    def value(self) -> Any:
        """The decoded value, shared by all layers: they do not change it in place."""
        if self._value is None and self.raw is not None:
            self._value = decode_params(self.raw, dict)
        return self._value

    def decode(self) -> Any:
        """The decoded value, for a handler that may change it."""
        return decode_params(self.raw, dict)


Next: TypeAlias = Callable[[Body], Awaitable[Body]]
"""Sends a message to the next layer or component; returns the result (of a request)."""


@attrs.frozen
class Layer:
    """One handler of a method."""

    handle: Callable[[Any, Body, Next], Awaitable[Body]]
    """Called with the plugin, the params and the next layer."""
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


def compose(layers: Sequence[Layer]) -> Callable[[Any, bytes, Callable[..., Any]], Awaitable[Any]]:
    """Return one handler function for raw params, for these layers."""

    async def handle(plugin: Any, raw: bytes, forward: Callable[..., Awaitable[Any]]) -> Any:
        async def send(body: Body) -> Body:
            return Body(await (forward() if body.raw is raw else forward(body.raw)))

        call_next: Next = send
        for layer in reversed(layers):
            if layer.accepts is None or layer.accepts(raw):
                call_next = partial(_call, layer, plugin, call_next)
        return (await call_next(Body(raw))).raw

    return handle


async def _call(layer: Layer, plugin: Any, call_next: Next, body: Body) -> Body:
    return await layer.handle(plugin, body, call_next)


def author_location(layers: Sequence[Layer]) -> str | None:
    """`file:line` of the author's function that gets the message, else of one that observes it."""
    places = [each.location for each in layers] + [each.observer for each in layers]
    return next(filter(None, places), None)


def accepts_any(layers: Sequence[Layer]) -> UpdateFilter | None:
    """The filter of several layers: an update that one of them accepts."""
    kinds: set[str] = set()
    for layer in layers:
        if layer.kinds is None:
            return None
        kinds |= layer.kinds
    return update_filter(kinds)


def handler_layer(handler: Any) -> Layer:
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
            if changed is None:
                raw = encode_edited(body.raw, message, read)
            else:
                raw = encode(changed)
            answer = await call_next(body if raw is body.raw else Body(raw))
            return decode_answer(answer.raw, handler.method, handler.result)

        return Body(encode(await function(plugin, message, forward)))

    return Layer(handle, handler.location)


def location_of(function: Any) -> str:
    """`file:line` of a function."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
