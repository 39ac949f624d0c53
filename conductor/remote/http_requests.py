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

from conductor.remote.address import Address
from conductor.remote.http_client import Clients
from conductor.remote.link import RemoteLink
from conductor.remote.network import nobody_listens
from conductor.remote.perseverance import Perseverance

__all__ = ["CONNECTION", "JSON", "SESSION", "TRY_AGAIN", "Requests"]

CONNECTION: Final = "Acp-Connection-Id"
SESSION: Final = "Acp-Session-Id"
JSON: Final = "application/json"
TRY_AGAIN: Final = frozenset({408, 425, 502, 503, 504})
"""Statuses of whoever is between us and a server of ours, or of one that is about to end."""


@attrs.define(eq=False)
class Requests:
    """`connection` is the id that the server gave us, once it has."""

    link: RemoteLink
    address: Address
    clients: Clients
    connection: str | None = attrs.field(default=None, init=False)
    heard: float = attrs.field(factory=trio.current_time, init=False)
    """When the server last said anything."""
    persevering: Perseverance = attrs.field(
        default=attrs.Factory(lambda self: Perseverance(where=self.link.where), takes_self=True),
        init=False,
    )
    _attempts: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """Requests that are under way."""

    @property
    def is_ours(self) -> bool:
        """Whether the server is an acp-conductor, which keeps what is ours for a while."""
        return self.persevering.keep > 0

    @property
    def extensions(self) -> dict[str, str]:
        name = self.address.tls.server_name
        return {} if name is None else {"sni_hostname": name}

    async def request(
        self, method: str, headers: dict[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        if content is not None:
            headers["Content-Type"] = headers["Accept"] = JSON
        if self.connection is not None:
            headers[CONNECTION] = self.connection
        response = await self.clients.short.request(
            method, self.address.url, headers=headers, content=content, extensions=self.extensions
        )
        self.heard = trio.current_time()
        return response

    async def persist(
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
            if response is not None and response.status_code not in TRY_AGAIN:
                self.persevering.reached()
                return response
            nobody = response is None and nobody_listens(error)
            if not await self.persevering.try_again(nobody=nobody):
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
        if self.link.reached:
            self.link.lost(why)
        else:
            self.link.end(f"could not be reached at {self.link.where}: {why}")

    async def say_goodbye(self) -> None:
        """Tell a server that has not lost us that the connection is over."""
        if self.connection is None or self.link.is_lost:
            return
        try:
            await self.request("DELETE", {})
        except httpx2.HTTPError:
            return  # the server finds out by itself
