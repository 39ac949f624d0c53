"""Back-pressure of one chain: when the client, the agent and the proxies are not read.

The client and the agent are at the edges: they are not read while a component that they send to is
over the high watermark. A proxy is read even then, because one pipe carries both of its directions,
and a proxy that cannot write may stop reading. It is not read once its predecessor, or a peer
outside of the chain, has its share of `max_buffered_bytes` waiting, or the whole chain 5/4 of
`max_buffered_bytes`. So each component waits only for components nearer to the client, and the
client for none: there is no deadlock. Bytes that a proxy floods toward the agent are bounded by the
total.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from conductor.chain.client_end import ClientEnd
from conductor.chain.startup_gate import StartupGate
from conductor.routing.component import Component
from conductor.transport.base import Transport
from conductor.transport.io_loop import HIGH_WATERMARK, ReadGate

__all__ = ["BackPressure"]


class BackPressure(msgspec.Struct, eq=False):
    """Read gates of one chain. `components` is the chain's list, which changes."""

    client: ClientEnd
    components: list[Component]
    startup_gate: StartupGate
    further_backlog: Callable[[], int] = lambda: 0
    """Returns the bytes that a further chain of the client has not read."""

    def client_gate(self, transport: Transport) -> ReadGate:
        """Gate of the client's reader; `transport` is the client's."""
        client_port = self.client.link.plain

        def backlog() -> int:
            most = max((component.backlog() for component in self.components), default=0)
            # A peer outside, which a plugin sends to, may lag by its share before the client's
            # messages are held back.
            outside = client_port.neighbour.unread() - self._share() + HIGH_WATERMARK
            return max(most, outside, self.further_backlog()) + self.startup_gate.size

        return ReadGate(self.client.flusher, backlog, peer_closed_write=transport.peer_closed_write)

    def edge_gate(self) -> ReadGate:
        """Gate of the agent's reader, and of any other source of messages toward the client."""
        return ReadGate(
            self.client.flusher, lambda: max(self.client.link.backlog(), self._proxies_backlog())
        )

    @property
    def is_held_back(self) -> bool:
        """Whether the client or the agent is not read now."""
        gates = self.client_gate(self.client.transport), self.edge_gate()
        return not all(gate.open for gate in gates)

    def component_gate(self, component: Component) -> ReadGate:
        """Gate of a component's reader."""
        agent_port = component.agent_port
        if agent_port is None:
            return self.edge_gate()
        share, most = self._share(), self.client.limits.max_buffered_bytes * 5 // 4

        def backlog() -> int:
            before = max(self.client.link.backlog(), component.client_port.neighbour.backlog())
            return max(before, agent_port.neighbour.unread(), self._total_backlog() - most + share)

        return ReadGate(self.client.flusher, backlog, share)

    def _share(self) -> int:
        """Bytes of `max_buffered_bytes` for each component and the client."""
        return self.client.limits.max_buffered_bytes // (len(self.components) + 1)

    def _proxies_backlog(self) -> int:
        return max((each.backlog() for each in self.components[:-1]), default=0)

    def _total_backlog(self) -> int:
        return self.client.link.backlog() + sum(
            component.backlog() for component in self.components
        )
