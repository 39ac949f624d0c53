"""`FakeProxy`: a scripted proxy on one connection, which carries its two ports (client and
agent)."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    CANCEL,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    notification_pieces,
    request_pieces,
)
from conductor.peer import JsonRpcPeer, MessageHandler
from conductor.routing.envelope import (
    ENVELOPE_METHODS,
    INIT_METHODS,
    TRIED,
    Dialect,
    unwrap,
    wrap_notification,
    wrap_request,
)
from conductor.testing.fakes import FakeComponent
from conductor.transport.memory import MemoryTransport

__all__ = ["FakeProxy"]


@attrs.define(eq=False)
class FakeProxy(FakeComponent):
    """A proxy that forwards messages byte for byte, except those with an entry in `handlers`.

    A handler answers the message in place of its receiver. `toward_agent` and `toward_client` send
    requests of the proxy's own.
    """

    handlers: dict[str, MessageHandler] = attrs.field(factory=dict)
    name: str = attrs.field(default="fake-proxy", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="proxy", init=False)
    speaks: Dialect = attrs.field(default=TRIED[0], kw_only=True)

    async def toward_agent(self, method: str, params: Any = None) -> Any:
        envelope = {"method": method, "params": params}
        return await self.endpoint.request(f"{self.speaks}/successor", envelope)

    async def toward_client(self, method: str, params: Any = None) -> Any:
        return await self.endpoint.request(method, params)

    def new_endpoint(self, transport: MemoryTransport) -> JsonRpcPeer:
        return _PassingPeer(transport, self.handlers, speaks=self.speaks)


@attrs.define(eq=False)
class _PassingPeer(JsonRpcPeer):
    """The proxy's end of the connection: unwraps and wraps successor envelopes."""

    speaks: Dialect = attrs.field(kw_only=True)
    _passed: dict[InFlightRequest, InFlightRequest] = attrs.field(factory=dict, init=False)
    """Forwarded request: the received request that its response answers."""

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method in self.handlers:
            super().on_request(call, method, params)
        elif method in INIT_METHODS and INIT_METHODS[method] != self.speaks:
            self._see_request(call, method, params)
            error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
            self.connection.respond(call, None, error)
        elif method in INIT_METHODS:
            self._see_request(call, method, params)
            self._pass_request(call, "initialize", params, enveloped=True)
        elif method in ENVELOPE_METHODS:
            inner = unwrap(params)
            call.method = inner.method
            if inner.method in self.handlers:
                super().on_request(call, inner.method, inner.params)
                return
            self._see_request(call, inner.method, inner.params)
            self._pass_request(call, inner.method, inner.params, enveloped=False)
        else:
            self._see_request(call, method, params)
            self._pass_request(call, method, params, enveloped=True)

    def on_notification(self, method: str, params: Payload | None) -> None:
        enveloped = method not in ENVELOPE_METHODS
        if not enveloped:
            inner = unwrap(params)
            method, params = inner.method, inner.params
        super().on_notification(method, params)
        if method == CANCEL or method in self.handlers:
            return
        if enveloped:
            self.connection.write(wrap_notification(self.speaks, method, params))
        else:
            self.connection.write(notification_pieces(method, params))

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        super().on_response(call, result, error)
        asked = self._passed.pop(call, None)
        if asked is not None:
            self.connection.respond(asked, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        self.notify(CANCEL, {"requestId": call.target_id})

    def _see_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_request(call, method, params)

    def _pass_request(
        self, call: InFlightRequest, method: str, params: Payload | None, *, enveloped: bool
    ) -> None:
        own = InFlightRequest(method, self, target=self)
        self._passed[own] = call
        call.target = _ForwardedRequest(own)
        id = self.connection.open(own)
        if enveloped:
            self.connection.write(wrap_request(self.speaks, id, method, params))
        else:
            self.connection.write(request_pieces(id, method, params))

    def _cancel_by_peer(self, params: Any) -> None:
        super()._cancel_by_peer(params)
        call = self.connection.received.get(params["requestId"])
        if call is not None:
            call.cancel()


@attrs.frozen(eq=False)
class _ForwardedRequest:
    """Target of a received request: cancels the forwarded request."""

    own: InFlightRequest

    def cancel(self, call: InFlightRequest) -> None:
        self.own.cancel()
