"""The ASGI app: requests and WebSockets as parsed by hypercorn.

HTTP requests are answered by `http.endpoint`. WebSockets arrive here only over HTTP/2 (RFC 8441) or
on a reused HTTP/1.1 connection; `listen.tcp` accepts the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.background_tasks import background_tasks
from conductor.log import get_logger
from conductor.server.access import AccessPolicy, Refusal, TcpPeer, join_headers
from conductor.server.clients import ClientOwner, ClientRegistry, RemoteClient
from conductor.server.cluster.forward import CONNECTION_COOKIE, NodeForwarder, connection_cookie
from conductor.server.exception_location import exception_location
from conductor.server.fair_share import CURRENT_ACCOUNT
from conductor.server.http.connection import ServerHttpConnection
from conductor.server.http.endpoint import EndpointHandler
from conductor.server.http.parse_request import ENDPOINT_PATH
from conductor.server.http.request_response import (
    PLAIN_TEXT,
    Headers,
    Receive,
    ReceiveBudget,
    Send,
    encode_headers,
)
from conductor.server.protocol_sniff import PeekableStream, parse_headers
from conductor.server.websocket.bounded import PARTIAL_MESSAGE_KEY
from conductor.server.websocket.connection import AsgiServerWebSocket, serve_websocket
from conductor.server.websocket.partial_message import PartialMessage
from conductor.server.websocket.reconnect import AdmittedWebSocket, admit_websocket

__all__ = ["BRIDGE_PATH", "CONNECTION_COOKIE", "AsgiApp", "Headers"]


BRIDGE_PATH: Final = "/message"
"""WebSocket path of `stdio-to-ws`, to which marimo connects: its messages may be binary."""

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class AsgiApp:
    """`nursery`: runs the tasks of HTTP clients that outlive a request."""

    clients: ClientRegistry
    access: AccessPolicy
    nursery: trio.Nursery
    forwarding: NodeForwarder | None = None
    """Forwards to the other nodes of a cluster; `None` without one."""
    _receive_budget: ReceiveBudget = attrs.field(factory=ReceiveBudget, init=False)
    _streamable: dict[RemoteClient, ServerHttpConnection] = attrs.field(factory=dict, init=False)

    async def __call__(self, peer: TcpPeer, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            clients, access = self.clients, self.access
            limits, timeouts = clients.limits, clients.timeouts
            await EndpointHandler(
                scope, receive, send, access, limits, timeouts, self._receive_budget, self, peer
            ).answer()
        elif scope["type"] == "websocket":
            await self._websocket(peer, scope, receive, send)

    # -- fair sharing of the event loop ------------------------------------------------------------

    async def wait_for_share(self) -> None:
        """Wait until the connection of this task is within its share of the event loop."""
        account_ref = CURRENT_ACCOUNT.get()
        if account_ref is not None:
            await self.clients.fair_share.wait_for_share(account_ref.account)

    def charge_to_principal(self, headers: Mapping[str, str], peer: TcpPeer) -> None:
        """Charge the connection of this task to its principal instead of its address."""
        principal, account_ref = self.access.principal(headers, peer), CURRENT_ACCOUNT.get()
        if account_ref is not None and not isinstance(principal, Refusal):
            owner = ClientOwner(principal, peer.address)
            account_ref.account = self.clients.fair_share.account(owner.quota_key)

    # -- WebSocket ---------------------------------------------------------------------------------

    def partial_message(self) -> PartialMessage:
        """Receive limits for a new WebSocket."""
        return PartialMessage(self._receive_budget, self.clients.limits, self.clients.timeouts)

    def upgrade(
        self, path: str, headers: Mapping[str, str], peer: TcpPeer
    ) -> tuple[AdmittedWebSocket, Headers] | Refusal:
        """Admit a WebSocket; return its client and the headers of the handshake response."""
        if path.partition("?")[0] not in (ENDPOINT_PATH, BRIDGE_PATH):
            return Refusal(404, f"there is only {ENDPOINT_PATH}")
        principal = self.access.principal(headers, peer)
        if isinstance(principal, Refusal):
            return principal
        cookie = connection_cookie(headers.get("cookie", ""))
        admitted = admit_websocket(
            self.clients, headers, cookie, ClientOwner(principal, peer.address)
        )
        if isinstance(admitted, Refusal):
            return admitted
        return admitted, [*self.identity(admitted.client, peer), *admitted.headers]

    async def try_forward(self, peekable: PeekableStream, peer: TcpPeer) -> bool:
        """Tunnel a WebSocket to the node that has its connection; return whether that was done."""
        owner = await self._owner_node(join_headers(parse_headers(peekable.head)), peer)
        if self.forwarding is None or owner is None:
            return False
        return await self.forwarding.tunnel_socket(owner, peekable)

    async def _owner_node(self, headers: Mapping[str, str], peer: TcpPeer) -> str | None:
        """URL of the other node that has the connection named by a WebSocket, or `None`."""
        if self.forwarding is None or peer.certificate is not None:
            return None  # the certificate cannot be presented to the other node
        if isinstance(self.access.principal(headers, peer), Refusal):
            return None
        return await self.forwarding.owner(headers, by_cookie=True)

    def identity(self, client: RemoteClient, peer: TcpPeer) -> Headers:
        """Response headers with the connection's id: a header, and a cookie for load balancers."""
        secure = "; Secure" if peer.secure else ""
        cookie = f"{CONNECTION_COOKIE}={client.id}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return [(CONNECTION_HEADER, client.id), ("set-cookie", cookie)]

    async def _websocket(self, peer: TcpPeer, scope: Any, receive: Receive, send: Send) -> None:
        partial_message, give_up = scope["state"][PARTIAL_MESSAGE_KEY]
        partial_message.quota_key = peer.address
        async with background_tasks() as nursery:
            nursery.start_soon(partial_message.watch, give_up)
            try:
                await self._serve_websocket(peer, scope, receive, send, partial_message)
            finally:
                partial_message.done()

    async def _serve_websocket(
        self,
        peer: TcpPeer,
        scope: Any,
        receive: Receive,
        send: Send,
        partial_message: PartialMessage,
    ) -> None:
        await receive()
        headers = join_headers(scope["headers"])
        socket = AsgiServerWebSocket(receive, send)
        owner = await self._owner_node(headers, peer) if scope["path"] == ENDPOINT_PATH else None
        if self.forwarding is not None and owner is not None:
            accept, most = partial(_accept_websocket, send), self.clients.limits.message_bytes
            if await self.forwarding.relay_messages(owner, scope, accept, socket, most):
                return
        opened = self.upgrade(scope["path"], headers, peer)
        if isinstance(opened, Refusal):
            start = {"type": "websocket.http.response.start", "status": opened.status}
            await send({**start, "headers": encode_headers([*PLAIN_TEXT, *opened.headers])})
            await send({"type": "websocket.http.response.body", "body": opened.reason.encode()})
            return
        admitted, extra = opened
        partial_message.quota_key = admitted.client.owner.quota_key
        await _accept_websocket(send, encode_headers(extra))
        await serve_websocket(socket, admitted, self.clients.timeouts)

    # -- Streamable HTTP ---------------------------------------------------------------------------

    def connect(self, owner: ClientOwner) -> ServerHttpConnection | Refusal:
        """Admit a new client over Streamable HTTP."""
        client = self.clients.admit(owner, "http")
        if isinstance(client, Refusal):
            return client
        streamable = self._streamable[client] = ServerHttpConnection(client, self.clients.limits)
        self.nursery.start_soon(self._run, streamable)
        return streamable

    def find(self, id: str | None, principal: str) -> ServerHttpConnection | Refusal:
        """The HTTP connection with this id, if it belongs to the principal."""
        if id is None:
            return Refusal(400, "Acp-Connection-Id header required")
        client = self.clients.find(id, principal)
        streamable = self._streamable.get(client) if client is not None else None
        return streamable or Refusal(404, "Unknown Acp-Connection-Id")

    async def _run(self, streamable: ServerHttpConnection) -> None:
        try:
            await streamable.run()
        except Exception as exc:  # a bug: other clients are not affected
            log.error(
                "client connection failed",
                client=streamable.client.number,
                **exception_location(exc),
            )
            streamable.client.end()
        finally:
            del self._streamable[streamable.client]


async def _accept_websocket(send: Send, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.accept", "headers": list(headers)})
