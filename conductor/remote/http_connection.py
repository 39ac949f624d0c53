"""Requests to one endpoint over HTTP, and what they have in common: the connection that they name,
and how they fail.

A server of ours gets a request again until it has answered, for as long as it keeps what is ours.
What is under way when the connection is found to be dead is cut, and tried again over another one.
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
"""Statuses of whoever is between us and a server of ours, or of one that is about to end."""


@attrs.define(eq=False)
class ClientHttpConnection:
    """`connection` is the id that the server gave us, once it has."""

    transport: RemoteTransport
    address: RemoteAddress
    clients: HttpClientPool
    connection: str | None = attrs.field(default=None, init=False)
    last_received: float = attrs.field(factory=trio.current_time, init=False)
    """When the server last said anything."""
    backoff: Backoff = attrs.field(
        default=attrs.Factory(
            lambda self: Backoff(location=self.transport.location), takes_self=True
        ),
        init=False,
    )
    _attempts: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """ClientHttpConnection that are under way."""

    @property
    def is_conductor(self) -> bool:
        """Whether the server is an acp-conductor, which keeps what is ours for a while."""
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
        """A request that a server of ours gets again until it has answered."""
        while True:
            response: httpx2.Response | None = None
            error: httpx2.HTTPError = httpx2.ReadTimeout("it did not answer")
            with self.attempt():
                try:
                    response = await self.request(method, headers, content)
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
        """What happens in the block ends when the connection is found to be dead."""
        with trio.CancelScope() as scope:
            self._attempts.add(scope)
            try:
                yield
            finally:
                self._attempts.discard(scope)

    def cut(self, nursery: trio.Nursery) -> None:
        """What is under way will not be answered: let it be tried again, over other connections."""
        dead, self.clients.short = self.clients.short, self.clients.new()
        nursery.start_soon(dead.aclose)
        for scope in self._attempts:
            scope.cancel()

    def fail(self, error: httpx2.HTTPError) -> None:
        """End the connection: this went wrong, and is not tried again."""
        why = self.clients.why(error)
        if self.transport.reached:
            self.transport.lost(why)
        else:
            self.transport.end(f"could not be reached at {self.transport.location}: {why}")

    async def send_delete(self) -> None:
        """Tell a server that has not lost us that the connection is over."""
        if self.connection is None or self.transport.is_lost:
            return
        try:
            await self.request("DELETE", {})
        except httpx2.HTTPError:
            return  # the server finds out by itself
