"""Checks of the values that event handlers return: a value of another type is never sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from conductor.errors import LocalProtocolError
from conductor.proxy.middleware import Body, Next

__all__ = ["SentRequest", "answer_body", "text_or_none"]


class SentRequest:
    """A request that a handler may forward, and the last answer to it."""

    __slots__ = ("_call_next", "answer")

    def __init__(self, call_next: Next) -> None:
        self._call_next = call_next
        self.answer: Body | None = None

    async def __call__(self, body: Body) -> Any:
        """Send the request; returns the result, which the handler may change."""
        self.answer = await self._call_next(body)
        return self.answer.decode()


def answer_body(function: Callable[..., Any], value: Any, sent: SentRequest, instead: str) -> Body:
    """The body of the result of a request, which is a JSON object in every version of the protocol.

    `instead` tells the author what to write. The answer of the peer is passed on also if it is not
    an object. Raises `LocalProtocolError` for other values.
    """
    _check_awaited(function, value)
    if sent.answer is not None and value == sent.answer.decode():
        return sent.answer
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
