"""`acp-conductor` whose recording is switched off by one signal, and on by another: what recording
costs is compared in one process."""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

from conductor.cli import main
from conductor.routing.port import Port
from conductor.routing.traced_port import TracedPort
from conductor.tracing.recorder import TraceRecorder

__all__ = ["OFF", "ON"]

OFF: Final = getattr(signal, "SIGRTMIN", 0)
ON: Final = OFF + 1
_traced: dict[Port, TracedPort] = {}
"""The ports of components, with the ports that their neighbours have when it is on."""


def _trace(recorder: TraceRecorder, port: Port, *args: Any) -> TracedPort:
    _traced[port] = made = _make(recorder, port, *args)
    return made


def _switch(number: int, frame: object) -> None:
    for port in _traced:
        neighbour = port.neighbour
        plain = neighbour._port if isinstance(neighbour, TracedPort) else neighbour
        port.connect(_traced.get(plain, plain) if number == ON else plain)


_make: Final = TraceRecorder.trace

if __name__ == "__main__":
    TraceRecorder.trace = _trace  # type: ignore[assignment]
    signal.signal(OFF, _switch)
    signal.signal(ON, _switch)
    sys.argv[0] = "acp-conductor"
    main()
