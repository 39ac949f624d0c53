"""Mode of an MCP connection between two ends of the same revision."""

from __future__ import annotations

from collections import deque
from typing import Any

from bridges.mcp_connection import ConnectionMode, McpConnection
from bridges.mcp_protocol import (
    ACKNOWLEDGED,
    SUBSCRIPTION_NOTIFICATIONS,
    SUBSCRIPTIONS_LISTEN,
    subscription_id_in,
    with_subscription_id,
)
from conductor.bridge_api import InFlightRequest, Payload

__all__ = ["PassThrough"]


class PassThrough(ConnectionMode):
    """Mode for ends of the same revision: forwards messages unchanged, except subscription ids.

    Notifications of a `subscriptions/listen` stream name the request that opened it by its id at
    the server; the id is replaced by the consumer's.
    """

    def __init__(self, mcp_connection: McpConnection) -> None:
        super().__init__(mcp_connection)
        self._unacknowledged: deque[InFlightRequest] = deque()
        self._listening: dict[Any, InFlightRequest] = {}

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        if method != SUBSCRIPTIONS_LISTEN:
            super().request(call, method, params)
            return
        self._unacknowledged.append(call)
        self.mcp_connection.ask(call, method, params, lambda r, e: self._listened(call, r, e))

    def server_notification(
        self, method: str, params: Payload | None, owner: InFlightRequest | None
    ) -> None:
        if params is not None and method in SUBSCRIPTION_NOTIFICATIONS:
            owner, params = self._renamed(method, bytes(params), owner)
        self.mcp_connection.consumer.notify(method, params, owner)

    def _listened(self, call: InFlightRequest, result: bytes | None, error: bytes | None) -> None:
        if call in self._unacknowledged:
            self._unacknowledged.remove(call)
        self._listening = {id: of for id, of in self._listening.items() if of is not call}
        if result is not None:
            result = with_subscription_id(result, call.source_id)
        self.mcp_connection.reply(call, result, error)

    def _renamed(
        self, method: str, params: bytes, owner: InFlightRequest | None
    ) -> tuple[InFlightRequest | None, bytes]:
        id = subscription_id_in(params)
        if id is None:
            return owner, params
        if owner is None:
            owner = self._listening.get(id)
        if owner is None and method == ACKNOWLEDGED and self._unacknowledged:
            owner = self._unacknowledged[0]  # acknowledgements arrive in the order of the requests
        if owner is None:
            return None, params
        if method == ACKNOWLEDGED and owner in self._unacknowledged:  # one id for each request
            self._unacknowledged.remove(owner)
            self._listening[id] = owner
        return owner, with_subscription_id(params, owner.source_id)
