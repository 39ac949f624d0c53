"""A component played by a test, line by line: a `SupervisedComponent` without a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from conductor.testing.memory_pair_component import MemoryPairComponent
from conductor.transport.memory import MemoryTransport
from support.scripted_peer import Peer


@attrs.define(eq=False)
class MemoryComponent(MemoryPairComponent):
    """Speaks the wire protocol with `peer`, which a test (or `make_peer`) plays.

    It has ended when the peer has ended its stream. `kill` breaks the pipe, as a dead process does.
    """

    role: Literal["proxy", "agent"] = "proxy"
    make_peer: Callable[..., Peer] = Peer
    reports: list[tuple[str, str]] = attrs.field(factory=list, init=False)
    """Protocol errors reported for the component."""
    peer: Peer = attrs.field(init=False)
    terminated: bool = attrs.field(default=False, init=False)

    def _on_connected(self, transport: MemoryTransport) -> None:
        self.peer = self.make_peer(transport, f"{self.name}#{self.starts}")

    async def _run_peer(self) -> None:
        await self.peer.run()

    def _disconnect(self) -> None:
        self.peer.transport.close()

    def _report(self, event: str, detail: str, message: dict[str, object]) -> None:
        self.reports.append((event, detail))

    def terminate(self) -> None:
        self._stopping = self.terminated = True
        self.peer.close()
