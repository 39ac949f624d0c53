"""Connection to a remote component, with the interface of a child process.

The supervisor's connection holds one end of a memory pair; a relay function moves lines between the
other end and the network until either ends. There is one relay function per network (`websocket`,
`streamable_http`, `unix`). It sets `reached` on the first response, and calls `end` or `lost` with
the reason, a text that follows the component's name.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import attrs
import trio

from conductor.errors import describe
from conductor.log import get_logger
from conductor.network.address import RemoteAddress
from conductor.network.tcp import Unreachable
from conductor.transport.memory import LineChannel, MemoryTransport, memory_pair

__all__ = ["RelayFunction", "RemoteTransport", "refusal_message", "server_text"]

_HELP: Final = {
    401: "; authentication required: `headers: {Authorization: …}`, or `--token-file`",
    403: "; not permitted: check `headers`, or `tls` for a certificate",
    404: "; is this the path of its endpoint?",
    405: "; is this the path of its endpoint?",
    407: "; the HTTP proxy requires authentication: `http://user:password@…`",
    426: "; it expects another protocol: try `ws://` instead of `http://`, or the reverse",
}
_BAD_TOKEN_HELP: Final = "; the token, or the user, is not valid there"
_MAX_TEXT: Final = 200

log: Final = get_logger(component="conductor")

RelayFunction = Callable[["RemoteTransport"], Awaitable[None]]


@attrs.define(eq=False)
class RemoteTransport:
    """One connection to a remote component. `wait` runs it."""

    location: str
    """URL or path, for logs and errors."""
    max_message_bytes: int
    _carry: RelayFunction
    transport: MemoryTransport = attrs.field(init=False)
    network: MemoryTransport = attrs.field(init=False)
    """The relay function's end; `lines` is the same in lines."""
    lines: LineChannel = attrs.field(init=False)
    status: str | None = attrs.field(default=None, init=False)
    reached: bool = attrs.field(default=False, init=False)
    """Whether the server has ever responded."""
    is_lost: bool = attrs.field(default=False, init=False)
    """The connection is lost: no close is sent."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.transport, self.network = memory_pair()
        self.lines = LineChannel(self.network)

    async def wait(self) -> str:
        """Run the connection; return the reason for its end."""
        try:
            with self._scope:
                await self._carry(self)
        except Unreachable as exc:
            self.status = self.status or str(exc)
        except Exception as exc:  # an error of a library ends this connection only
            log.error("connection failed", location=self.location, error=_error_text(exc))
            self.status = self.status or f"failed at {self.location}: {_error_text(exc)}"
        finally:
            self.status = self.status or f"was disconnected from {self.location}"
            self.lines.close()
        return self.status

    def end(self, how: str) -> None:
        """End the connection with this reason and cancel the relay. The first reason counts."""
        if self.status is None:
            self.status = how
        self._scope.cancel()

    def lost(self, why: str) -> None:
        """End the connection, which is lost for this reason."""
        self.is_lost = True
        self.end(f"lost its connection to {self.location}: {why}")

    async def read_stderr(self) -> bytes:
        """Remote components have no stderr."""
        return b""

    def signal(self, number: signal.Signals) -> None:
        """SIGTERM and SIGKILL close the connection."""
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._scope.cancel()

    def close(self) -> None:
        self.transport.close()


def refusal_message(address: RemoteAddress, status: int, body: bytes) -> str:
    """Text for a connection that an HTTP server refused: status, its text, a remedy."""
    has_credentials = any(name.lower() == "authorization" for name in address.headers)
    help = _BAD_TOKEN_HELP if status == 401 and has_credentials else _HELP.get(status, "")
    return f"was refused at {address.display_url}: {_status_text(status)}{server_text(body)}{help}"


def server_text(body: bytes) -> str:
    """The response body in parentheses; empty if there is none or it is an HTML page."""
    text = body[: 4 * _MAX_TEXT].decode(errors="replace").strip()
    if not text or text.startswith("<"):
        return ""
    line = "".join(char if char.isprintable() else " " for char in text)
    return f" ({line[:_MAX_TEXT]}{'…' if len(line) > _MAX_TEXT else ''})"


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _error_text(error: BaseException) -> str:
    """Short text of an error, or of the first in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)
