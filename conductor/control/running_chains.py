"""The chains that run in this process, for `ps` and the flight recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Protocol, TypeAlias

    from conductor.tracing.recorder import Entry, TraceRecorder

    Flight: TypeAlias = deque[Entry]

    class RunningChain(Protocol):
        """A chain, as other threads see it: everything is only read."""

        recorder: TraceRecorder | None

        def status(self) -> dict[str, Any]:
            """Its status for `ps`, as JSON."""


__all__ = ["add", "flights", "remove", "running_chains"]

_chains: list[RunningChain] = []


def add(chain: RunningChain) -> None:
    _chains.append(chain)


def remove(chain: RunningChain) -> None:
    _chains[:] = [each for each in _chains if each is not chain]


def running_chains() -> list[RunningChain]:
    """The chains, the oldest first."""
    return _chains.copy()


def flights() -> list[Flight]:
    """The flight recorders that are in use; the chains of a server have one."""
    found = {}
    for chain in running_chains():
        if chain.recorder is not None:
            found[id(chain.recorder.flight)] = chain.recorder.flight
    return list(found.values())
