"""Interfaces of what an MCP connection joins: consumer, provider, filter, and the bridge itself.

Implemented by `shim_consumer` and `native_agent` (consumers), `acp_provider` and
`remote_provider` (providers), `shared_servers` (filter) and `bridge` (runtime).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from conductor.bridge_api import InFlightRequest, Payload, ResponseCallback

__all__ = ["NO_SOURCE", "BridgeRuntime", "Cancel", "Consumer", "Provider", "RequestFilter"]

Cancel: TypeAlias = Callable[[], None]


class Consumer(Protocol):
    """Client side of an MCP connection: a shim, or a native agent."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """Send the response to a request of the consumer."""

    def request(self, method: str, params: Payload | None, answered: ResponseCallback) -> Cancel:
        """Send a request of the server (sampling, elicitation, roots); returns a function that
        cancels it."""

    def notify(
        self, method: str, params: Payload | None, owner: InFlightRequest | None = None
    ) -> None:
        """Send a notification; `owner` is the consumer's request that it is about, if known."""

    def close(self) -> None:
        """The connection is closed: no more messages follow."""


class Provider(Protocol):
    """Access to an MCP server: over ACP in one of its bindings, or over HTTP."""

    modern: bool
    """Whether it speaks only revision 2026-07-28 (the stateless binding)."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of queued requests; when they decrease, the provider calls `made_room` of its
        connection."""

    def request(
        self, call: InFlightRequest, method: str, params: Payload | None, answered: ResponseCallback
    ) -> Cancel:
        """Send a request to the server for the consumer's `call`; returns a function that cancels
        it."""

    def notify(self, method: str, params: Payload | None) -> None:
        """Send a notification to the server."""

    def close(self) -> None:
        """Release the server: the connection is closed."""


class RequestFilter(Protocol):
    """Filter before a server that several sessions of the agent can reach."""

    def takes(self, call: InFlightRequest, method: str, params: Payload | None) -> bool:
        """Whether the filter handles this request; otherwise it is forwarded."""

    def answered(self, result: bytes) -> bytes:
        """Return the tool list to send to the agent in place of the server's `result`."""

    def changed(self) -> None:
        """The server has sent `notifications/tools/list_changed`."""

    def close(self) -> None:
        """The connection is closed."""


class BridgeRuntime(Protocol):
    """Services of the bridge for its connections."""

    def prepare(self, then: Callable[[], None]) -> None:
        """Call `then` once the types of MCP are imported."""

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after `seconds`."""


class _NoSource:
    """Source of the bridge's own requests, which have no originator."""

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        raise AssertionError("a request of the bridge itself has no originator")


NO_SOURCE: Final = _NoSource()
