"""`ObservedPlugin`: a plugin that shows an observer every message at its two ports.

    neighbour ⇄ _Inlet ─▶ port of the plugin ─▶ _Outlet ─▶ neighbour

`acp-conductor try` uses it. Messages are passed on in the same call, so the plugin behaves as
without an observer.
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
    _inlets: tuple[Port, Port] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        client_port, agent_port = self._scheduler.client_port, self._scheduler.agent_port
        self._inlets = (
            _Inlet(client_port, "agent", self.observer),
            _Inlet(agent_port, "client", self.observer),
        )
        for port in (client_port, agent_port):
            if port.observer is not None:
                port.observer = self._observed(port.observer)
            for method, handler in port.handlers.items():
                port.handlers[method] = self._observed(handler)

    @property
    def client_port(self) -> Port:
        return self._inlets[0]

    @property
    def agent_port(self) -> Port | None:
        return self._inlets[1]

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


class _Inlet(Port):
    """Receives the messages for one port of the plugin."""

    __slots__ = ("_observer", "_port", "_toward")

    def __init__(
        self, port: PluginPort, toward: Literal["agent", "client"], observer: PluginObserver
    ) -> None:
        super().__init__()
        self._port = port
        self._toward: Literal["agent", "client"] = toward
        self._observer = observer
        port.neighbour = _Outlet(self, port, "client" if toward == "agent" else "agent", observer)

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        handled = self._is_handled(method, params)
        self._observer.received(
            PassedMessage("request", self._toward, method, _raw(params), call, is_handled=handled)
        )
        self._port.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        handled = self._is_handled(method, params)
        self._observer.received(
            PassedMessage("notification", self._toward, method, _raw(params), is_handled=handled)
        )
        self._port.notify(method, params)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        payload, is_error = _raw(result if error is None else error), error is not None
        self._observer.received(
            PassedMessage("response", self._toward, call.method, payload, call, is_error)
        )
        self._port.respond(call, result, error)

    def backlog(self) -> int:
        return self._port.backlog()

    def unread(self) -> int:
        return self._port.unread()

    def _is_handled(self, method: str, params: Payload | None) -> bool:
        handler = self._port.handlers.get(method)
        return handler is not None and (handler.accepts is None or handler.accepts(params))


class _Outlet(Port):
    """Neighbour of the plugin's port: passes what the plugin sends to the inlet's neighbour."""

    __slots__ = ("_inlet", "_observer", "_port", "_toward")

    def __init__(
        self,
        inlet: _Inlet,
        port: PluginPort,
        toward: Literal["agent", "client"],
        observer: PluginObserver,
    ) -> None:
        super().__init__()
        self._inlet = inlet
        self._port = port
        self._toward: Literal["agent", "client"] = toward
        self._observer = observer

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self._sent(PassedMessage("request", self._toward, method, _raw(params), call))
        self._inlet.neighbour.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._sent(PassedMessage("notification", self._toward, method, _raw(params)))
        self._inlet.neighbour.notify(method, params)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        payload, is_error = _raw(result if error is None else error), error is not None
        self._sent(PassedMessage("response", self._toward, call.method, payload, call, is_error))
        self._inlet.neighbour.respond(call, result, error)

    def backlog(self) -> int:
        return self._inlet.neighbour.backlog()

    def unread(self) -> int:
        return self._inlet.neighbour.unread()

    def _sent(self, message: PassedMessage) -> None:
        handler_call = current_handler_call.get()
        if handler_call is not None and (
            handler_call.done or handler_call.port not in (self._port, self._port.other)
        ):
            handler_call = None  # that of a neighbour, which sends through this plugin
        self._observer.sent(message, handler_call)


def _raw(payload: Payload | None) -> bytes | None:
    return None if payload is None else bytes(payload)
