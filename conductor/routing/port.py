"""Ports: a component's face toward the client, and its face toward the agent.

Two components are neighbours when one's agent port and the other's client port are linked. A
message for a component is put to one of its ports; a message from a component goes to the
neighbour of the port that it leaves through. Linking two other ports is all that it takes to put
a component into a chain, or to leave it out.
"""

from __future__ import annotations

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, encode_error
from conductor.jsonrpc.notification_batch import NotificationBatch

__all__ = ["Port", "UnconnectedPort", "connect_ports"]


class Port:
    """One port of a component, as its neighbour sees it: messages for the component are put here.

    Nothing here waits, and what is put first leaves first.
    """

    __slots__ = ("neighbour",)

    neighbour: Port

    def __init__(self) -> None:
        self.neighbour = _unconnected

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """A request from the neighbour; the answer goes to `self.neighbour.respond`."""
        raise NotImplementedError

    def notify(self, method: str, params: Payload | None) -> None:
        """A notification from the neighbour."""
        raise NotImplementedError

    def notify_batch(self, notifications: NotificationBatch) -> None:
        """Several notifications of one method, in order."""
        for each in notifications.params:
            self.notify(notifications.method, each)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """The answer to a call that left through this port; one of `result` and `error`."""
        raise NotImplementedError

    def cancel(self, call: InFlightRequest) -> None:
        """Nobody wants the answer to this call any more; it overtakes whatever waits."""
        raise NotImplementedError

    def backlog(self) -> int:
        """Bytes that wait for whoever takes what is put here."""
        return 0

    def unread(self) -> int:
        """Bytes that left the chain through plugins, and wait outside of it to be read."""
        return 0


class UnconnectedPort(Port):
    """What a port faces that is linked to nothing: requests are refused, the rest is dropped."""

    __slots__ = ()

    def __init__(self) -> None:
        self.neighbour = self

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        error = encode_error(INTERNAL_ERROR, "The chain is closing", {"method": method})
        call.source.respond(call, None, error)

    def notify(self, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        pass

    def cancel(self, call: InFlightRequest) -> None:
        pass


_unconnected = UnconnectedPort()


def connect_ports(toward_agent: Port, toward_client: Port) -> None:
    """Make two ports neighbours: one component's agent port, the next one's client port."""
    toward_agent.neighbour = toward_client
    toward_client.neighbour = toward_agent
