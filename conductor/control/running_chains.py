"""The chains that run in this process, for `ps`, the flight recorder and `--debug-dir`.

Every start imports it, so it imports nothing itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Protocol, TypeAlias

    from conductor.supervision.endpoint import Launcher
    from conductor.tracing.recorder import Entry, TraceRecorder
    from conductor.transport.base import Transport

    Flight: TypeAlias = deque[Entry]

    class RawStreamRecorder(Protocol):
        """Records raw bytes; implemented by `raw_streams.RawStreams`, which imports this module."""

        def client(self, transport: Transport) -> Transport: ...

        def launcher(self, component: str, launch: Launcher) -> Launcher: ...

        def close(self) -> None: ...

    class RunningChain(Protocol):
        """A chain, as other threads see it: everything is only read."""

        recorder: TraceRecorder | None

        def status(self) -> dict[str, Any]:
            """Its status for `ps`, as JSON."""


__all__ = ["add", "flights", "raw_streams", "record_raw_streams", "remove", "running_chains"]

_chains: list[RunningChain] = []
_raw_streams: list[RawStreamRecorder] = []


def record_raw_streams(streams: RawStreamRecorder) -> None:
    """Record the raw bytes of all components from now on (`--debug-dir`)."""
    _raw_streams[:] = [streams]


def raw_streams() -> RawStreamRecorder | None:
    """The recorder of the raw bytes of components; `None` without one."""
    return _raw_streams[0] if _raw_streams else None


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
