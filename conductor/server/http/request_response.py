"""One HTTP request and its response over ASGI: body limits, headers, writing.

A body is read to its end even if the request is refused, within limits: with hypercorn, data that
arrives after the response ends the whole TCP connection, which HTTP/2 streams share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs
import trio

from conductor.server.access import AccessPolicy, Refusal, join_headers
from conductor.server.limits import ServerLimits, ServerTimeouts

__all__ = [
    "PLAIN_TEXT",
    "Headers",
    "Receive",
    "ReceiveBudget",
    "RequestResponse",
    "Send",
    "encode_headers",
]

Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[str, str]]

PLAIN_TEXT: Final = [("content-type", "text/plain; charset=utf-8")]
_MAX_DISCARDED: Final = 1024 * 1024
"""Bytes of an oversized or unexpected body that are read and discarded."""


@attrs.define(eq=False)
class ReceiveBudget:
    """Bytes of incomplete bodies and messages: in total, and by address (`of`)."""

    bytes: int = 0
    of: Counter[str] = attrs.field(factory=Counter)

    def add(self, address: str, count: int) -> None:
        self.bytes += count
        self.of[address] += count
        if not self.of[address]:
            del self.of[address]


@attrs.define(eq=False)
class RequestResponse:
    """One request and its response."""

    scope: Any
    receive: Receive
    send: Send
    access: AccessPolicy
    limits: ServerLimits
    timeouts: ServerTimeouts
    budget: ReceiveBudget
    headers: Mapping[str, str] = attrs.field(init=False)
    _received: bool = attrs.field(default=False, init=False)
    """The body has been read to its end."""

    def __attrs_post_init__(self) -> None:
        self.headers = join_headers(self.scope["headers"])

    def number(self, header: str) -> int | None:
        """The decimal number in a header, or `None`."""
        value = self.headers.get(header, "")
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None

    async def body(self, address: str) -> bytes | Refusal:
        """Receive the body, counted for its address; or a refusal (413, 503, 408)."""
        limits, budget = self.limits, self.budget
        body = bytearray()
        refusal: Refusal | None = None
        try:
            async for chunk in self._chunks(limits.message_bytes):
                if refusal is None:
                    body += chunk
                    budget.add(address, len(chunk))
                if len(body) > limits.message_bytes:
                    refusal = Refusal(413, "POST body too large")
                elif (
                    budget.bytes > limits.body_bytes or budget.of[address] > limits.body_bytes_each
                ):
                    refusal = Refusal(503, "too many bytes in flight", (("retry-after", "1"),))
                if refusal is not None:
                    budget.add(address, -len(body))
                    body.clear()
            return refusal or bytes(body)
        except trio.TooSlowError:
            return Refusal(408, "the rest of the body did not come")
        finally:
            budget.add(address, -len(body))

    async def refuse(self, refusal: Refusal) -> None:
        """Read the rest of the body, then respond with the refusal."""
        with suppress(trio.TooSlowError):
            async for _ in self._chunks(0):
                pass
        body = refusal.reason.encode()
        await self.respond(refusal.status, body, [*PLAIN_TEXT, *refusal.headers])

    async def respond(self, status: int, body: bytes, headers: Headers) -> None:
        """Send a complete response."""
        length = [] if status == 204 else [("content-length", str(len(body)))]
        await self.start(status, [*headers, *length])
        await self.write(body, last=True)

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of a response; `write` sends the body."""
        start = {"type": "http.response.start", "status": status}
        cors = self.access.cors(self.headers)
        await self.send({**start, "headers": encode_headers([*headers, *cors])})

    async def write(self, body: bytes, *, last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})

    async def wait_disconnect(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the client disconnects."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _chunks(self, most: int) -> AsyncIterator[bytes]:
        """The rest of the body, up to `most` bytes plus `_MAX_DISCARDED`. Raises `TooSlowError`."""
        while not self._received and most + _MAX_DISCARDED > 0:
            with trio.fail_after(self.timeouts.headers):
                event = await self.receive()
            if event["type"] == "http.disconnect":
                raise trio.BrokenResourceError
            self._received = not event.get("more_body")
            chunk = event.get("body", b"")
            most -= len(chunk)
            yield chunk


def encode_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Encode headers for ASGI."""
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]
