"""One HTTP request and its response, over ASGI: what every kind of request needs.

A body is read to its end whatever is answered, within bounds: what still comes for a request that
was answered would end the whole TCP connection, which may be shared (hypercorn, HTTP/2).
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
"""What is read, and thrown away, of a body that is too long, or that nobody asked for."""


@attrs.define(eq=False)
class ReceiveBudget:
    """Bytes of bodies that are not complete yet: of all requests together, and of one's own."""

    bytes: int = 0
    of: Counter[str] = attrs.field(factory=Counter)

    def add(self, quota_key: str, count: int) -> None:
        self.bytes += count
        self.of[quota_key] += count
        if not self.of[quota_key]:
            del self.of[quota_key]


@attrs.define(eq=False)
class RequestResponse:
    """One request, and its response."""

    scope: Any
    receive: Receive
    send: Send
    access: AccessPolicy
    limits: ServerLimits
    timeouts: ServerTimeouts
    load: ReceiveBudget
    headers: Mapping[str, str] = attrs.field(init=False)
    _received: bool = attrs.field(default=False, init=False)
    """The body has been read to its end."""

    def __attrs_post_init__(self) -> None:
        self.headers = join_headers(self.scope["headers"])

    def number(self, header: str) -> int | None:
        """The number in a header, if it is one."""
        value = self.headers.get(header, "")
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None

    async def body(self, quota_key: str) -> bytes | Refusal:
        """The body, which counts as theirs. It is read to its end: what still comes for a request
        that was answered would end the whole TCP connection (hypercorn, HTTP/2)."""
        limits, load = self.limits, self.load
        body = bytearray()
        refusal: Refusal | None = None
        try:
            async for chunk in self._chunks(limits.message_bytes):
                if refusal is None:
                    body += chunk
                    load.add(quota_key, len(chunk))
                if len(body) > limits.message_bytes:
                    refusal = Refusal(413, "POST body too large")
                elif load.bytes > limits.body_bytes or load.of[quota_key] > limits.body_bytes_each:
                    refusal = Refusal(503, "too much at a time", (("retry-after", "1"),))
                if refusal is not None:
                    load.add(quota_key, -len(body))
                    body.clear()
            return refusal or bytes(body)
        except trio.TooSlowError:
            return Refusal(408, "the rest of the body did not come")
        finally:
            load.add(quota_key, -len(body))

    async def refuse(self, refusal: Refusal) -> None:
        """Say no, after what is left of the body."""
        with suppress(trio.TooSlowError):
            async for _ in self._chunks(0):
                pass
        body = refusal.reason.encode()
        await self.respond(refusal.status, body, [*PLAIN_TEXT, *refusal.headers])

    async def respond(self, status: int, body: bytes, headers: Headers) -> None:
        """The whole response."""
        length = [] if status == 204 else [("content-length", str(len(body)))]
        await self.start(status, [*headers, *length])
        await self.write(body, last=True)

    async def start(self, status: int, headers: Headers) -> None:
        """The head of a response, whose body is written by `write`."""
        start = {"type": "http.response.start", "status": status}
        cors = self.access.cors(self.headers)
        await self.send({**start, "headers": encode_headers([*headers, *cors])})

    async def write(self, body: bytes, *, last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})

    async def wait_disconnect(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the client does not want to know any more."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _chunks(self, most: int) -> AsyncIterator[bytes]:
        """What is left of the body; one that is much longer than it may be is given up."""
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
    """Headers as ASGI has them."""
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]
