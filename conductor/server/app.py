"""The ASGI app: requests and WebSockets as parsed by hypercorn.

HTTP requests are answered by `http.endpoint`. WebSockets arrive here only over HTTP/2 (RFC 8441) or
on a reused HTTP/1.1 connection; `listen.tcp` accepts the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import attrs
import trio

from conductor.acp import CONNECTION_HEADER
from conductor.background_tasks import background_tasks
from conductor.errors import exception_location
from conductor.log import get_logger
from conductor.server.access import AccessPolicy, Refusal, TcpPeer, join_headers
from conductor.server.clients import ClientRegistry, Device, RemoteClient
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
from conductor.server.websocket.bounded import PARTIAL_MESSAGE_KEY
from conductor.server.websocket.connection import (
    AdmittedWebSocket,
    AsgiServerWebSocket,
    admit_websocket,
    serve_websocket,
)
from conductor.server.websocket.partial_message import PartialMessage

__all__ = ["BRIDGE_PATH", "CONNECTION_COOKIE", "AsgiApp", "Headers"]


CONNECTION_COOKIE: Final = "acp_connection"
"""Cookie with the id of a client's connection."""
BRIDGE_PATH: Final = "/message"
"""WebSocket path of `stdio-to-ws`, to which marimo connects: its messages may be binary."""

log: Final = get_logger(component="server")


@attrs.define(eq=False)
class AsgiApp:
    """`nursery`: runs the tasks of HTTP clients that outlive a request."""

    clients: ClientRegistry
    access: AccessPolicy
    nursery: trio.Nursery
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
        token = self.access.authenticate(headers, peer)
        if isinstance(token, Refusal):
            return token
        cookie = _connection_cookie(headers.get("cookie", ""))
        admitted = admit_websocket(self.clients, headers, cookie, Device(token, peer.address))
        if isinstance(admitted, Refusal):
            return admitted
        return admitted, [*self.identity(admitted.client, peer), *admitted.headers]

    def identity(self, client: RemoteClient, peer: TcpPeer) -> Headers:
        """Response headers with the connection's id: a header, and a cookie for load balancers."""
        secure = "; Secure" if peer.secure else ""
        cookie = f"{CONNECTION_COOKIE}={client.id}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return [(CONNECTION_HEADER, client.id), ("set-cookie", cookie)]

    async def _websocket(self, peer: TcpPeer, scope: Any, receive: Receive, send: Send) -> None:
        partial_message, give_up = scope["state"][PARTIAL_MESSAGE_KEY]
        partial_message.address = peer.address
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
        opened = self.upgrade(scope["path"], headers, peer)
        if isinstance(opened, Refusal):
            start = {"type": "websocket.http.response.start", "status": opened.status}
            await send({**start, "headers": encode_headers([*PLAIN_TEXT, *opened.headers])})
            await send({"type": "websocket.http.response.body", "body": opened.reason.encode()})
            return
        admitted, extra = opened
        await send({"type": "websocket.accept", "headers": encode_headers(extra)})
        await serve_websocket(AsgiServerWebSocket(receive, send), admitted, self.clients.timeouts)

    # -- Streamable HTTP ---------------------------------------------------------------------------

    def connect(self, device: Device) -> ServerHttpConnection | Refusal:
        """Admit a new client over Streamable HTTP."""
        client = self.clients.admit(device, "http")
        if isinstance(client, Refusal):
            return client
        streamable = self._streamable[client] = ServerHttpConnection(client, self.clients.limits)
        self.nursery.start_soon(self._run, streamable)
        return streamable

    def find(self, id: str | None) -> ServerHttpConnection | Refusal:
        """The HTTP connection with this id."""
        if id is None:
            return Refusal(400, "Acp-Connection-Id header required")
        client = self.clients.find(id)
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


def _connection_cookie(header: str) -> str | None:
    """The connection id in a `Cookie` header, or `None`."""
    try:
        morsel = SimpleCookie(header).get(CONNECTION_COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value
