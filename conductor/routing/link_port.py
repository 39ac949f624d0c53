"""The ports of a link: requests, notifications and responses to the component behind it.

In: messages that have passed the stages of the port (`stage`). Out: lines for the component,
enveloped or plain.
"""

from __future__ import annotations

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    CANCEL,
    Payload,
    encode_id,
    notification_pieces,
    request_pieces,
)
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.routing.envelope import notification_affixes, wrap_notification, wrap_request
from conductor.routing.link_state import LinkState
from conductor.routing.stage import StagedPort

__all__ = ["LinkPort"]


class LinkPort(StagedPort):
    """One port of a link.

    A request gets an id of this connection and is recorded in `connection.sent`, so that its
    response finds its originator. With `enveloped`, messages are sent in the successor envelope.
    """

    __slots__ = ("enveloped", "link")

    def __init__(self, link: LinkState, *, enveloped: bool) -> None:
        super().__init__()
        self.link: LinkState = link
        self.enveloped: bool = enveloped

    @property
    def component_name(self) -> str:
        # An outer conductor brings the messages of both neighbours.
        return "agent" if self.enveloped and self.link.role == "parent" else self.link.name

    def sender_of(self, method: str) -> str:
        return self.component_name

    def backlog(self) -> int:
        return self.link.backlog()

    def deliver_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        assert connection is not None  # else the stage `disconnected` has answered
        call.target = self
        id = connection.open(call)
        if self.enveloped:
            connection.write(wrap_request(link.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def deliver_notification(self, method: str, params: Payload | None) -> None:
        connection = self.link.connection
        if connection is None:
            return
        if self.enveloped:
            connection.write(wrap_notification(self.link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def deliver_batch(self, notifications: NotificationBatch) -> None:
        connection = self.link.connection
        if connection is None:
            return
        head, tail = notification_affixes(
            self.link.dialect if self.enveloped else None, notifications.method
        )
        connection.write((notifications.as_lines(head, tail),))

    def deliver_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        call.source.respond(call, result, error)

    def cancel(self, call: InFlightRequest) -> None:
        connection = self.link.connection
        if connection is not None and connection.sent.get(call.target_id) is call:
            super().cancel(call)

    def deliver_cancel(self, call: InFlightRequest) -> None:
        """Re-issue the cancellation with this hop's id.

        Only a parent conductor gets it in an envelope; other components expect it plain.
        """
        connection = self.link.connection
        assert connection is not None
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))
