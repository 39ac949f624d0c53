"""The ports of a link: requests, notifications and responses to the component behind it.

In: messages that have passed the stages of the port (`stage`). Out: lines for the component,
enveloped or plain.
"""

from __future__ import annotations

from conductor.acp import SESSION_CANCEL
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
        if not self.enveloped:
            for each in link.outgoing_observers:
                each.on_request(call, method, params)
        if link.session_names is not None:
            params = link.session_names.to_agent(params)
        id = connection.open(call)
        if self.enveloped:
            connection.write(wrap_request(link.dialect, id, method, params))
        else:
            connection.write(request_pieces(id, method, params))
        if call.cancelled:
            self.cancel(call)

    def deliver_notification(self, method: str, params: Payload | None) -> None:
        link = self.link
        connection = link.connection
        if connection is None:
            return
        if method == SESSION_CANCEL:
            for each in link.outgoing_observers:
                each.on_session_cancel(params)
        for each in link.incoming_observers:
            if each.wants_notifications:
                each.on_notification(method, params)
        if link.session_names is not None:
            params = link.session_names.to_agent(params)
        if self.enveloped:
            connection.write(wrap_notification(link.dialect, method, params))
        else:
            connection.write(notification_pieces(method, params))

    def deliver_batch(self, notifications: NotificationBatch) -> None:
        link = self.link
        connection = link.connection
        if (
            connection is None
            or link.session_names is not None
            or notifications.method == SESSION_CANCEL
        ):
            for params in notifications.params:
                self.deliver_notification(notifications.method, params)
            return
        for each in link.incoming_observers:
            if each.wants_notifications:
                each.on_notifications(notifications)
        head, tail = notification_affixes(
            link.dialect if self.enveloped else None, notifications.method
        )
        connection.write((notifications.as_lines(head, tail),))

    def deliver_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        for each in self.link.incoming_observers:
            each.on_response(call)
        call.source.respond(call, result, error)

    def deliver_cancel(self, call: InFlightRequest) -> None:
        """Re-issue the cancellation with this hop's id.

        Only a parent conductor gets it in an envelope; other components expect it plain.
        """
        connection = self.link.connection
        if connection is None or connection.sent.get(call.target_id) is not call:
            return
        if self.on_cancel is not None:
            self.on_cancel(call)
        for each in self.link.outgoing_observers:
            each.on_cancel_request(call)
        params = b'{"requestId":%b}' % encode_id(call.target_id)
        if self.enveloped and self.link.role == "parent":
            connection.write(wrap_notification(self.link.dialect, CANCEL, params))
        else:
            connection.write(notification_pieces(CANCEL, params))
