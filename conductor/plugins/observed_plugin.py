"""`ObservedPlugin`: a plugin with stages that show an observer what it receives and sends.

`acp-conductor try` uses it.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import attrs

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.plugins.handler_call import HandlerCall, current_handler_call
from conductor.plugins.plugin_component import PluginComponent
from conductor.plugins.plugin_port import PluginPort
from conductor.proxy.middleware import Handler
from conductor.routing.port import Port
from conductor.routing.stage import (
    EVERY,
    ForwardNotification,
    ForwardRequest,
    ForwardResponse,
    Stage,
    StagedPort,
)

__all__ = ["ObservedPlugin", "PassedMessage", "PluginObserver"]


@attrs.frozen(eq=False)
class PassedMessage:
    """A message that a plugin has received or sent."""

    kind: Literal["request", "notification", "response"]
    toward: Literal["agent", "client"]
    """Its direction."""
    method: str
    """For a response, the method of its request."""
    payload: bytes | None
    """Raw JSON of the params, result or error."""
    call: InFlightRequest | None = None
    """The request, if this is a request or its response. A handler that forwards a request makes
    another one."""
    is_error: bool = False
    is_handled: bool = False
    """Whether it is a request or notification for which the plugin has a handler."""


class PluginObserver(Protocol):
    """Gets what a plugin does, in order."""

    def received(self, message: PassedMessage) -> None:
        """A message has arrived; it may wait for its turn in the lane."""

    def handler_started(self, handler_call: HandlerCall) -> None:
        """The handler of a message begins, or an observer (`@on("*")`) of it."""

    def sent(self, message: PassedMessage, handler_call: HandlerCall | None) -> None:
        """The plugin sends a message. `handler_call` is the handler that does; it is `None` for a
        message without a handler, which is passed on, and for one of a task."""

    def handler_returned(self, handler_call: HandlerCall) -> None:
        """The handler or observer of a message has ended without an exception."""


@attrs.define(eq=False, repr=False)
class ObservedPlugin(PluginComponent):
    """A proxy with an observer."""

    observer: PluginObserver = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for port in self._scheduler.ports:
            port.insert(_Received(port, self.observer))
            if port.observer is not None:
                port.observer = self._observed(port.observer)
            for method, handler in port.handlers.items():
                port.handlers[method] = self._observed(handler)

    def _observed(self, handler: Handler) -> Handler:
        """The handler, with calls of the observer at its start and end."""

        async def handle(*args: Any) -> Any:
            handler_call = current_handler_call.get()
            assert handler_call is not None
            self.observer.handler_started(handler_call)
            result = await handler.function(*args)
            self.observer.handler_returned(handler_call)
            return result

        return attrs.evolve(handler, function=handle)


class _Received(Stage):
    """Shows what a port of the plugin receives, and its neighbour receives from it."""

    __slots__ = ("_observer", "_plugin", "_sent", "_toward")

    name = "observed plugin"
    sent: frozenset[str] = EVERY
    received: frozenset[str] = EVERY

    def __init__(self, port: PluginPort, observer: PluginObserver) -> None:
        self._plugin = port
        self._toward: Literal["agent", "client"] = "agent" if port.source == "client" else "client"
        self._observer = observer
        self._sent: _Sent | None = None

    def connected(self, neighbour: Port) -> None:
        if self._sent is not None:
            self._sent.port.remove(self._sent)
        assert isinstance(neighbour, StagedPort)
        self._sent = _Sent(self._plugin.other, self._observer)
        neighbour.insert(self._sent)

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        handled = self._is_handled(method, params)
        self._show(
            PassedMessage("request", self._toward, method, _raw(params), call, is_handled=handled)
        )
        forward(call, method, params)

    def send_notification(
        self, forward: ForwardNotification, method: str, params: Payload | None
    ) -> None:
        handled = self._is_handled(method, params)
        self._show(
            PassedMessage("notification", self._toward, method, _raw(params), is_handled=handled)
        )
        forward(method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        payload, is_error = _raw(result if error is None else error), error is not None
        self._show(PassedMessage("response", self._toward, call.method, payload, call, is_error))
        forward(call, result, error)

    def _show(self, message: PassedMessage) -> None:
        self._observer.received(message)

    def _is_handled(self, method: str, params: Payload | None) -> bool:
        handler = self._plugin.handlers.get(method)
        return handler is not None and (handler.accepts is None or handler.accepts(params))


class _Sent(_Received):
    """Shows what a neighbour of the plugin receives: messages that came through this port of the
    plugin, or in their place."""

    __slots__ = ()

    def connected(self, neighbour: Port) -> None:
        pass

    def _show(self, message: PassedMessage) -> None:
        handler_call = current_handler_call.get()
        if handler_call is not None and (
            handler_call.done or handler_call.port not in (self._plugin, self._plugin.other)
        ):
            handler_call = None  # that of a neighbour, which sends through this plugin
        self._observer.sent(message, handler_call)

    def _is_handled(self, method: str, params: Payload | None) -> bool:
        return False


def _raw(payload: Payload | None) -> bytes | None:
    return None if payload is None else bytes(payload)
