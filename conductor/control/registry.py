"""The chains that run in this process. Imported at the start: imports nothing itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from conductor.tracing.recorder import Recorder

    class RunningChain(Protocol):
        """A chain, as other threads see it: everything is only read."""

        recorder: Recorder | None

        def status(self) -> dict[str, Any]:
            """What `ps` shows of it, as JSON."""


__all__ = ["add", "remove", "running_chains"]

_chains: list[RunningChain] = []


def add(chain: RunningChain) -> None:
    _chains.append(chain)


def remove(chain: RunningChain) -> None:
    _chains[:] = [each for each in _chains if each is not chain]


def running_chains() -> list[RunningChain]:
    """The chains, the oldest first."""
    return _chains.copy()
