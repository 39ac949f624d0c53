"""The ASGI app: what hypercorn has parsed goes to the clients, and what they are told goes back.

HTTP requests are answered by `answering`. A WebSocket comes this way only over HTTP/2 (RFC 8441),
or on an HTTP/1.1 connection that was used before; see `listening` for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from conductor.endpoint import background
from conductor.log import get_logger
from conductor.server.access import Access, Peer, Refusal, join_headers
from conductor.server.answering import PATH, Answering
from conductor.server.bounded_sockets import UNFINISHED
from conductor.server.exchange import PLAIN, Headers, Load, Receive, Send, encoded
from conductor.server.failures import place_of
from conductor.server.forwarding import COOKIE, Forwarding, cookie_of
from conductor.server.peeking import Peeked, headers_of
from conductor.server.remote_clients import Owner, RemoteClient, RemoteClients
from conductor.server.returning import Arrival, arrive
from conductor.server.shares import PAYER
from conductor.server.sockets import AsgiSocket, carry
from conductor.server.streamable import Streamable
from conductor.server.unfinished import Unfinished

__all__ = ["COOKIE", "App", "Headers"]


log = get_logger(component="server")


@attrs.define(eq=False)
class App:
    """`nursery` runs what belongs to a client longer than one request of it."""

    clients: RemoteClients
    access: Access
    nursery: trio.Nursery
    forwarding: Forwarding | None = None
    """To the other nodes, where there are any."""
    _load: Load = attrs.field(factory=Load, init=False)
    _streamable: dict[RemoteClient, Streamable] = attrs.field(factory=dict, init=False)

    async def __call__(self, peer: Peer, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            clients, access = self.clients, self.access
            bounds, patience = clients.bounds, clients.patience
            await Answering(
                scope, receive, send, access, bounds, patience, self._load, self, peer
            ).answer()
        elif scope["type"] == "websocket":
            await self._websocket(peer, scope, receive, send)

    # -- shares of the loop ------------------------------------------------------------------------

    async def turn(self) -> None:
        """Wait until the connection of this task may use the loop (`shares`)."""
        payer = PAYER.get()
        if payer is not None:
            await self.clients.shares.turn(payer.account)

    def charge(self, headers: Mapping[str, str], peer: Peer) -> None:
        """From now on the connection of this task is its principal's."""
        principal, payer = self.access.principal(headers, peer), PAYER.get()
        if payer is not None and not isinstance(principal, Refusal):
            owner = Owner(principal, peer.address)
            payer.account = self.clients.shares.account(owner.counted_as)

    # -- WebSocket ---------------------------------------------------------------------------------

    def unfinished(self) -> Unfinished:
        """For a WebSocket that may be opened."""
        return Unfinished(self._load, self.clients.bounds, self.clients.patience)

    def upgrade(
        self, path: str, headers: Mapping[str, str], peer: Peer
    ) -> tuple[Arrival, Headers] | Refusal:
        """For whom a WebSocket is to be opened, and the headers that tell it so."""
        if path.partition("?")[0] != PATH:
            return Refusal(404, f"there is only {PATH}")
        principal = self.access.principal(headers, peer)
        if isinstance(principal, Refusal):
            return principal
        cookie = cookie_of(headers.get("cookie", ""))
        arrival = arrive(self.clients, headers, cookie, Owner(principal, peer.address))
        if isinstance(arrival, Refusal):
            return arrival
        return arrival, [*self.identity(arrival.client, peer), *arrival.headers]

    async def forwards(self, peeked: Peeked, peer: Peer) -> bool:
        """Whether a WebSocket goes back to a connection of another node, which has served it."""
        owner = await self._elsewhere(join_headers(headers_of(peeked.head)), peer)
        if self.forwarding is None or owner is None:
            return False
        return await self.forwarding.relay_socket(owner, peeked)

    async def _elsewhere(self, headers: Mapping[str, str], peer: Peer) -> str | None:
        """The URL of the node that has the connection which a WebSocket goes back to."""
        if self.forwarding is None or peer.certificate is not None:
            return None  # a certificate cannot be shown for somebody else
        if isinstance(self.access.principal(headers, peer), Refusal):
            return None
        return await self.forwarding.owner(headers, by_cookie=True)

    def identity(self, client: RemoteClient, peer: Peer) -> Headers:
        """What a client is told of its connection: a header, and a cookie for load balancers."""
        secure = "; Secure" if peer.secure else ""
        cookie = f"{COOKIE}={client.id}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return [("acp-connection-id", client.id), ("set-cookie", cookie)]

    async def _websocket(self, peer: Peer, scope: Any, receive: Receive, send: Send) -> None:
        unfinished, give_up = scope["state"][UNFINISHED]
        unfinished.whose = peer.address
        async with background() as nursery:
            nursery.start_soon(unfinished.watch, give_up)
            try:
                await self._serve_websocket(peer, scope, receive, send, unfinished)
            finally:
                unfinished.done()

    async def _serve_websocket(
        self, peer: Peer, scope: Any, receive: Receive, send: Send, unfinished: Unfinished
    ) -> None:
        await receive()
        headers = join_headers(scope["headers"])
        socket = AsgiSocket(receive, send)
        owner = await self._elsewhere(headers, peer) if scope["path"] == PATH else None
        if self.forwarding is not None and owner is not None:
            accept, most = partial(_accept, send), self.clients.bounds.message_bytes
            if await self.forwarding.relay_messages(owner, scope, accept, socket, most):
                return
        opened = self.upgrade(scope["path"], headers, peer)
        if isinstance(opened, Refusal):
            start = {"type": "websocket.http.response.start", "status": opened.status}
            await send({**start, "headers": encoded([*PLAIN, *opened.headers])})
            await send({"type": "websocket.http.response.body", "body": opened.reason.encode()})
            return
        arrival, extra = opened
        unfinished.whose = arrival.client.owner.counted_as
        await _accept(send, encoded(extra))
        await carry(socket, arrival, self.clients.patience)

    # -- Streamable HTTP ---------------------------------------------------------------------------

    def connect(self, owner: Owner) -> Streamable | Refusal:
        """A client that speaks HTTP."""
        client = self.clients.admit(owner, "http")
        if isinstance(client, Refusal):
            return client
        streamable = self._streamable[client] = Streamable(client, self.clients.bounds)
        self.nursery.start_soon(self._run, streamable)
        return streamable

    def find(self, id: str | None, principal: str) -> Streamable | Refusal:
        if id is None:
            return Refusal(400, "Acp-Connection-Id header required")
        client = self.clients.find(id, principal)
        streamable = self._streamable.get(client) if client is not None else None
        return streamable or Refusal(404, "Unknown Acp-Connection-Id")

    async def _run(self, streamable: Streamable) -> None:
        try:
            await streamable.run()
        except Exception as exc:  # a mistake of ours, which is no other client's business
            log.error("a client was given up", client=streamable.client.number, **place_of(exc))
            streamable.client.end()
        finally:
            del self._streamable[streamable.client]


async def _accept(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.accept", "headers": list(headers)})
