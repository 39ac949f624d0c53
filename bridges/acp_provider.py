"""Provider of an MCP server over ACP: sends `mcp/*` requests toward the client.

A declaration does not contain the binding that its server supports. The first connection tries them
in order (`bindings.candidates`); later ones use the one found. The next binding is tried only after
an error that means "unknown binding" (`bindings.alternatives`); any other error refuses the
connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import attrs

from bridges.bindings import (
    Binding,
    alternatives,
    candidates,
    connect_params,
    connection_id_in,
    disconnect_params,
    error_code,
    message_params,
    unwrap_outcome,
)
from bridges.mcp_connection import CANCELLED, Cancel, DeclaredServer, McpConnection
from bridges.revisions import DISCOVER_PARAMS
from conductor.bridge_api import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    InFlightRequest,
    Limits,
    Payload,
    ResponseCallback,
    encode_error,
)
from conductor.proxy.peers import Peer

__all__ = ["AcpProvider", "BridgeHost", "StatelessExchange"]

_MAX_ACTIVE: Final = 64
"""Requests in flight to one stateless server; the default limit of providers (error -33000)."""
_REQUEST_OVERHEAD: Final = 500
"""Estimated size of a queued request without its params, in bytes."""
_CANCELLED: Final = encode_error(REQUEST_CANCELLED, "Request cancelled")
_NO_RESULT: Final = encode_error(INTERNAL_ERROR, "mcp/message returned no MCP result")


@attrs.frozen
class StatelessExchange:
    """A stateless request in flight; messages of the server about it go to its connection."""

    mcp_connection: McpConnection
    call: InFlightRequest


class BridgeHost(Protocol):
    """The part of `McpBridge` that MCP connections use."""

    limits: Limits
    connections: dict[str, McpConnection]
    """By connection id, for messages from servers."""
    exchanges: dict[tuple[str, str], StatelessExchange]
    """By server id and request id, for messages from servers."""

    @property
    def client(self) -> Peer: ...

    @property
    def agent(self) -> Peer: ...

    @property
    def answering(self) -> bool: ...

    def new_request_id(self) -> str: ...

    def defer(self, cancelled: Callable[[], None]) -> ResponseCallback: ...

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None: ...

    async def wait_room(self) -> None: ...

    def made_room(self) -> None: ...


@attrs.define(eq=False)
class AcpProvider:
    """One MCP connection to a server over ACP. `open` finds the binding, then opens the
    `McpConnection`."""

    server: DeclaredServer
    mcp_connection: McpConnection
    host: BridgeHost
    waiting_bytes: int = attrs.field(default=0, init=False)
    _connection: str | None = attrs.field(default=None, init=False)
    _told_session: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    # -- opening -----------------------------------------------------------------------------------

    def open(self) -> None:
        known = self.server.binding
        self._try([known] if known is not None else candidates(self.server.declaration), [])

    def _try(self, bindings: Sequence[Binding], errors: list[bytes]) -> None:
        if self.mcp_connection.closed:
            return
        if not bindings:
            self.mcp_connection.refuse(_most_specific(errors))
            return
        binding, rest = bindings[0], bindings[1:]

        def failed(error: bytes) -> None:
            self._try(alternatives(binding, error_code(error), rest), [*errors, error])

        if binding != "stateless":
            self._connect(binding, failed)
        elif self.server.binding is not None:
            self._ready(binding)
        else:
            self._probe(binding, failed)

    def _connect(self, binding: Binding, failed: Callable[[bytes], None]) -> None:
        session = self.server.session

        def answered(result: bytes | None, error: bytes | None) -> None:
            connection = connection_id_in(result) if result is not None else None
            if connection is None:
                failed(
                    error or encode_error(INTERNAL_ERROR, "mcp/connect returned no connectionId")
                )
                return
            if connection in self.host.connections:
                failed(encode_error(INTERNAL_ERROR, "mcp/connect returned a connectionId in use"))
                return
            self._connection = connection
            self._told_session = session is not None
            self._ready(binding)

        params = connect_params(binding, self.server.id, session)
        self.mcp_connection.withdraw_connect = self.host.client.ask("mcp/connect", params, answered)

    def _probe(self, binding: Binding, failed: Callable[[bytes], None]) -> None:
        """Send `server/discover` in the stateless binding: a result means that it is understood."""
        params = message_params(
            "server/discover",
            DISCOVER_PARAMS,
            server_id=self.server.id,
            request_id=self.host.new_request_id(),
        )

        def answered(result: bytes | None, error: bytes | None) -> None:
            if result is not None and unwrap_outcome(result) is not None:
                self._ready(binding)
            else:
                failed(error or _NO_RESULT)

        self.mcp_connection.withdraw_connect = self.host.client.ask("mcp/message", params, answered)

    def _ready(self, binding: Binding) -> None:
        self.server.binding = binding
        if binding == "stateless":
            self.server.revision = "modern"
        if self._connection is not None:
            self.host.connections[self._connection] = self.mcp_connection
        self.mcp_connection.open(self)

    # -- Provider ----------------------------------------------------------------------------------

    def request(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        if self._connection is None:
            return _StatelessRequest(self, call, method, params, answered).begin()
        carrier = message_params(
            method, params, connection_id=self._connection, session=self._session()
        )
        return self.host.client.ask("mcp/message", carrier, answered)

    def notify(self, method: str, params: Payload | None) -> None:
        # MCP cancellations name requests by ids that only the consumer knows; they are sent as
        # `$/cancel_request`. The stateless binding has no notifications to a server.
        if self._connection is not None and method != CANCELLED:
            carrier = message_params(method, params, connection_id=self._connection)
            self.host.client.send("mcp/message", carrier)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection is not None:
            self.host.connections.pop(self._connection, None)
            self.host.client.ask("mcp/disconnect", disconnect_params(self._connection), _ignore)

    def _session(self) -> str | None:
        """The session id for `_meta`, if it was not known at `mcp/connect`."""
        return None if self._told_session else self.server.session


@attrs.define(eq=False)
class _StatelessRequest:
    """One request in the stateless binding; its provider counts it while it waits."""

    _provider: AcpProvider
    _call: InFlightRequest
    _method: str
    _params: Payload | None
    _answered: ResponseCallback
    _is_cancelled: bool = attrs.field(default=False, init=False)
    _withdraw: Cancel | None = attrs.field(default=None, init=False)

    def begin(self) -> Cancel:
        """Send the request, or queue it while the server has its maximum in flight."""
        server = self._provider.server
        if server.active < _MAX_ACTIVE:
            self._send()
        else:
            self._params = None if self._params is None else bytes(self._params)
            self._provider.waiting_bytes += self._size
            server.waiting[self] = None
        return self._cancel

    @property
    def _size(self) -> int:
        return _REQUEST_OVERHEAD + (0 if self._params is None else len(self._params))

    def _leave_queue(self) -> None:
        del self._provider.server.waiting[self]
        self._provider.waiting_bytes -= self._size

    def _send(self) -> None:
        provider, server = self._provider, self._provider.server
        if self._is_cancelled or provider.mcp_connection.closed:
            self._answered(None, _CANCELLED)
            return
        request_id = provider.host.new_request_id()
        exchanges, key = provider.host.exchanges, (server.id, request_id)
        exchanges[key] = StatelessExchange(provider.mcp_connection, self._call)
        server.active += 1

        def settled(result: bytes | None, error: bytes | None) -> None:
            del exchanges[key]
            server.active -= 1
            inner = unwrap_outcome(result) if result is not None else (None, error)
            self._answered(*(inner or (None, _NO_RESULT)))
            while server.waiting and server.active < _MAX_ACTIVE:
                waiting = next(iter(server.waiting))
                waiting._leave_queue()
                waiting._send()
                waiting._provider.mcp_connection.made_room()

        carrier = message_params(
            self._method,
            self._params,
            server_id=server.id,
            request_id=request_id,
            session=server.session,
        )
        self._params = None
        self._withdraw = provider.host.client.ask("mcp/message", carrier, settled)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._withdraw is not None:
            self._withdraw()
        elif self in self._provider.server.waiting:
            self._leave_queue()
            self._answered(None, _CANCELLED)
            self._provider.mcp_connection.made_room()


def _most_specific(errors: list[bytes]) -> bytes:
    """Return the first error that is not "method not found", or else the first."""
    for error in errors:
        if error_code(error) not in (METHOD_NOT_FOUND, None):
            return error
    return errors[0] if errors else encode_error(INTERNAL_ERROR, "No way to reach the MCP server")


def _ignore(result: bytes | None, error: bytes | None) -> None:
    pass
