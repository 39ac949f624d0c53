"""The listener of `--metrics`: `GET /metrics` and `GET /healthz` over HTTP/1.1, in the event loop.

An answer of `/healthz` tells that the event loop runs. One request per connection. An error while
the metrics are written ends this request, not the server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import h11
import trio

from conductor.errors import exception_location
from conductor.log import get_logger
from conductor.network.sockets import accept

__all__ = ["MetricsListener"]

_TIMEOUT: Final = 10.0
"""Seconds for a request and its response."""
_MAX_CONNECTIONS: Final = 20
_MAX_HEAD: Final = 16 * 1024
_CHUNK: Final = 4096
log: Final = get_logger(component="server")
_TEXT: Final = "text/plain; charset=utf-8"


@attrs.define(eq=False)
class MetricsListener:
    """Answers requests; `text` returns content type and body for an `Accept` header."""

    text: Callable[[str], tuple[str, bytes]]
    _open: int = attrs.field(default=0, init=False)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections until cancelled; then the listener is closed."""
        async with listener, trio.open_nursery() as nursery:
            while True:
                stream = await accept(listener)
                if self._open >= _MAX_CONNECTIONS:
                    await trio.aclose_forcefully(stream)
                    continue
                self._open += 1
                nursery.start_soon(self._handle, stream)

    async def _handle(self, stream: trio.SocketStream) -> None:
        try:
            with (
                suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError),
                trio.move_on_after(_TIMEOUT),
            ):
                await self._answer(stream)
        finally:
            self._open -= 1
            await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(_CHUNK))
        if not isinstance(event, h11.Request):
            return
        status, content_type, body = self._response(event)
        headers = [
            ("content-type", content_type),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("connection", "close"),
        ]
        parts = [
            http.send(h11.Response(status_code=status, headers=headers)),
            http.send(h11.Data(b"" if event.method == b"HEAD" else body)),
            http.send(h11.EndOfMessage()),
        ]
        await stream.send_all(b"".join(part for part in parts if part))
        await stream.send_eof()

    def _response(self, request: h11.Request) -> tuple[int, str, bytes]:
        path = bytes(request.target).partition(b"?")[0]
        if request.method not in (b"GET", b"HEAD"):
            return 405, _TEXT, b"only GET\n"
        if path == b"/healthz":
            return 200, _TEXT, b"ok\n"
        if path == b"/metrics":
            accepted = [value for name, value in request.headers if name == b"accept"]
            try:
                return 200, *self.text(b",".join(accepted).decode("latin-1"))
            except Exception as exc:  # prometheus_client cannot read some values of `Accept`
                log.error("metrics not written", **exception_location(exc))
                return 500, _TEXT, b"the log of the server has the error\n"
        return 404, _TEXT, b"there are /metrics and /healthz\n"
