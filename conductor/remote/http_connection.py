"""Requests of one Streamable HTTP connection: connection id, retries, errors.

To a conductor, a request is repeated until it is answered, for as long as the server keeps the
connection. When the TCP connection is found dead, the requests in flight are cancelled and repeated
over a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import httpx2
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.network.address import RemoteAddress
from conductor.network.backoff import Backoff
from conductor.network.bounded_http import BodyTooLarge
from conductor.network.tcp import is_connection_refused
from conductor.remote.http_client import HttpClientPool
from conductor.remote.transport import RemoteTransport

__all__ = [
    "JSON_TYPE",
    "RETRY_STATUSES",
    "ClientHttpConnection",
]

JSON_TYPE: Final = "application/json"
RETRY_STATUSES: Final = frozenset({408, 425, 502, 503, 504})
"""Retried statuses: from an intermediary, or from a conductor that is draining."""


@attrs.define(eq=False)
class ClientHttpConnection:
    """`connection`: the id given by the server; `None` before initialization."""

    transport: RemoteTransport
    address: RemoteAddress
    clients: HttpClientPool
    connection: str | None = attrs.field(default=None, init=False)
    last_received: float = attrs.field(factory=trio.current_time, init=False)
    """Time of the last data from the server (trio clock)."""
    backoff: Backoff = attrs.field(
        default=attrs.Factory(
            lambda self: Backoff(location=self.transport.location), takes_self=True
        ),
        init=False,
    )
    _attempts: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """Requests in flight."""

    @property
    def is_conductor(self) -> bool:
        """Whether the server is a conductor, which keeps a cut connection for a while."""
        return self.backoff.keep > 0

    @property
    def extensions(self) -> dict[str, str]:
        name = self.address.tls.server_name
        return {} if name is None else {"sni_hostname": name}

    async def request(
        self, method: str, headers: dict[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        if content is not None:
            headers["Content-Type"] = headers["Accept"] = JSON_TYPE
        if self.connection is not None:
            headers[CONNECTION_HEADER] = self.connection
        response = await self.clients.short.request(
            method, self.address.url, headers=headers, content=content, extensions=self.extensions
        )
        self.last_received = trio.current_time()
        return response

    async def request_with_retry(
        self, method: str, headers: dict[str, str], content: bytes
    ) -> httpx2.Response:
        """Send a request; repeat it to a conductor until it is answered. Raises `HTTPError`."""
        while True:
            response: httpx2.Response | None = None
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            with self.attempt():
                try:
                    response = await self.request(method, headers, content)
                except BodyTooLarge:
                    raise
                except httpx2.HTTPError as exc:
                    error = exc
            if response is not None and response.status_code not in RETRY_STATUSES:
                self.backoff.reset()
                return response
            refused = response is None and is_connection_refused(error)
            if not await self.backoff.wait_to_retry(refused=refused):
                if response is None:
                    raise error
                return response

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Cancel the block when the connection is found dead (`cut`)."""
        with trio.CancelScope() as scope:
            self._attempts.add(scope)
            try:
                yield
            finally:
                self._attempts.discard(scope)

    def cut(self, nursery: trio.Nursery) -> None:
        """The TCP connection is dead: cancel the requests in flight and use a new HTTP client."""
        dead, self.clients.short = self.clients.short, self.clients.new()
        nursery.start_soon(dead.aclose)
        for scope in self._attempts:
            scope.cancel()

    def fail(self, error: httpx2.HTTPError) -> None:
        """End the connection with this error, without a retry."""
        why = self.clients.why(error)
        if self.transport.reached:
            self.transport.lost(why)
        else:
            self.transport.end(f"could not be reached at {self.transport.location}: {why}")

    async def send_delete(self) -> None:
        """End the connection at the server, unless it is lost. Errors are ignored."""
        if self.connection is None or self.transport.is_lost:
            return
        try:
            await self.request("DELETE", {})
        except httpx2.HTTPError:
            return  # the server detects the end by timeout
