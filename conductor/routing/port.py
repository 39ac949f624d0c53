"""Ports: a component's interface toward the client, and its interface toward the agent. Pure.

Two components are neighbours when the agent port of one is connected to the client port of the
other. A message for a component is passed to one of its ports; a message from a component goes to
the neighbour of the port that it leaves through. To insert or remove a component, ports are
connected anew.
"""

from __future__ import annotations

from typing import Final

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, Payload, RawMember, encode_error
from conductor.jsonrpc.notification_batch import NotificationBatch

__all__ = ["UNCONNECTED", "Port", "UnconnectedPort", "connect_ports"]


class Port:
    """One port of a component: its methods take messages for the component from its neighbour.

    No method waits, and the component gets the messages in the order of the calls.
    """

    __slots__ = ("neighbour",)

    neighbour: Port

    def __init__(self) -> None:
        self.neighbour = UNCONNECTED

    @property
    def component_name(self) -> str:
        """The name of the component; empty if unknown."""
        return ""

    def sender_of(self, method: str) -> str:
        """The name of the component that made the messages of this method that leave here: the
        port's own, or the one before it if these are passed on unread; empty if unknown."""
        return ""

    def connect(self, neighbour: Port) -> None:
        """Send what leaves through this port to `neighbour` from now on."""
        self.neighbour = neighbour

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """A request from the neighbour; the response goes to `self.neighbour.respond`."""
        raise NotImplementedError

    def notify(self, method: str, params: Payload | None) -> None:
        """A notification from the neighbour."""
        raise NotImplementedError

    def notify_batch(self, notifications: NotificationBatch) -> None:
        """Several notifications of one method, in order."""
        for each in notifications.params:
            self.notify(notifications.method, each)

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        """The response to a request that left through this port; one of `result` and `error`, as
        raw JSON."""
        raise NotImplementedError

    def backlog(self) -> int:
        """Bytes that wait to be read by the component."""
        return 0

    def unread(self) -> int:
        """Bytes that a plugin sent to peers outside of the chain and that are unread, for
        back-pressure."""
        return 0


class UnconnectedPort(Port):
    """Neighbour of a port that is not connected: refuses requests, drops everything else."""

    __slots__ = ()

    def __init__(self) -> None:
        self.neighbour: Port = self

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        error = encode_error(INTERNAL_ERROR, "The chain is closing", {"method": method})
        call.source.respond(call, None, error)

    def notify(self, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        pass


UNCONNECTED: Final = UnconnectedPort()


def connect_ports(toward_agent: Port, toward_client: Port) -> None:
    """Make two ports neighbours: a component's agent port and its successor's client port."""
    toward_agent.connect(toward_client)
    toward_client.connect(toward_agent)
