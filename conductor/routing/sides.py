"""Sides: a component's face toward the client, and its face toward the agent.

Two components are neighbours when one's agent side and the other's client side are linked. A
message for a component is put to one of its sides; a message from a component goes to the
neighbour of the side that it leaves through. Linking two other sides is all that it takes to put
a component into a chain, or to leave it out.
"""

from __future__ import annotations

from conductor.connection.calls import Call
from conductor.connection.runs import Run
from conductor.messages import INTERNAL_ERROR, Payload, encode_error

__all__ = ["Nowhere", "Side", "link"]


class Side:
    """One side of a component, as its neighbour sees it: messages for the component are put here.

    Nothing here waits, and what is put first leaves first.
    """

    __slots__ = ("neighbour",)

    neighbour: Side

    def __init__(self) -> None:
        self.neighbour = _nowhere

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        """A request from the neighbour; the answer goes to `self.neighbour.respond`."""
        raise NotImplementedError

    def notify(self, method: str, params: Payload | None) -> None:
        """A notification from the neighbour."""
        raise NotImplementedError

    def notify_run(self, run: Run) -> None:
        """Several notifications of one method, in order."""
        for each in run.params:
            self.notify(run.method, each)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """The answer to a call that left through this side; one of `result` and `error`."""
        raise NotImplementedError

    def cancel(self, call: Call) -> None:
        """Nobody wants the answer to this call any more; it overtakes whatever waits."""
        raise NotImplementedError

    def backlog(self) -> int:
        """Bytes that wait for whoever takes what is put here."""
        return 0

    def unread(self) -> int:
        """Bytes that left the chain through plugins, and wait outside of it to be read."""
        return 0


class Nowhere(Side):
    """What a side faces that is linked to nothing: requests are refused, the rest is dropped."""

    __slots__ = ()

    def __init__(self) -> None:
        self.neighbour = self

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        error = encode_error(INTERNAL_ERROR, "The chain is closing", {"method": method})
        call.source.respond(call, None, error)

    def notify(self, method: str, params: Payload | None) -> None:
        pass

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        pass

    def cancel(self, call: Call) -> None:
        pass


_nowhere = Nowhere()


def link(toward_agent: Side, toward_client: Side) -> None:
    """Make two sides neighbours: one component's agent side, the next one's client side."""
    toward_agent.neighbour = toward_client
    toward_client.neighbour = toward_agent
