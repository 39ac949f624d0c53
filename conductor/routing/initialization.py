"""Stages that hand the handshake of a component to its `Initialization`. Pure."""

from __future__ import annotations

from typing import Final, Protocol

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.routing.envelope import INIT_METHODS
from conductor.routing.stage import ForwardRequest, ForwardResponse, Stage

__all__ = ["InitializationHandler", "InitializationHolder", "Initialize", "SuccessorInitialize"]

_INITIALIZE: Final = frozenset({"initialize"})


class InitializationHandler(Protocol):
    """Initializes the component behind a link (`supervision.initialization`)."""

    def begin(self, call: InFlightRequest, params: Payload | None) -> None:
        """The predecessor sent `initialize` for the component."""

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        """The component answered an initialization of the conductor."""

    def on_forwarded(self, call: InFlightRequest) -> None:
        """The component sent `initialize` to its successor."""

    def on_echoed(self) -> None:
        """The component sent a proxy initialization to its successor."""

    def on_sent_back(self, method: str) -> None:
        """The component sent an initialization (`method`) to its predecessor."""

    def on_successor_response(self, call: InFlightRequest) -> None:
        """The successor answered the `initialize` that the component forwarded."""


class InitializationHolder(Protocol):
    """The link of the component."""

    initializer: InitializationHandler | None
    """That of its present process; `None` if others initialize it."""


class _HandshakeStage(Stage):
    __slots__ = ("_link",)

    name = "initialization"

    def __init__(self, link: InitializationHolder) -> None:
        self._link = link


class Initialize(_HandshakeStage):
    """Takes the `initialize` for the component: the conductor carries out the handshake."""

    __slots__ = ()

    sent: frozenset[str] = _INITIALIZE | frozenset(INIT_METHODS)

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self._link.initializer is None:
            forward(call, method, params)
        else:
            self._link.initializer.begin(call, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if self._link.initializer is None:
            forward(call, result, error)
        else:
            self._link.initializer.on_response(call, result, error)


class SuccessorInitialize(_HandshakeStage):
    """Sees the `initialize` that the component forwards: while it is open, the component waits for
    its successor."""

    __slots__ = ()

    received: frozenset[str] = _INITIALIZE

    def receive_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        if self._link.initializer is not None:
            self._link.initializer.on_forwarded(call)
        forward(call, method, params)

    def send_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        if self._link.initializer is not None:
            self._link.initializer.on_successor_response(call)
        forward(call, result, error)
