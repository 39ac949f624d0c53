"""`acp-conductor` whose recording is switched off by one signal, and on by another: what recording
costs is compared in one process."""

from __future__ import annotations

import signal
import sys
from typing import Final

from conductor.cli import main
from conductor.routing.stage import Stage, StagedPort
from conductor.routing.trace import TraceStage

__all__ = ["OFF", "ON"]

OFF: Final = getattr(signal, "SIGRTMIN", 0)
ON: Final = OFF + 1
_traces: list[tuple[StagedPort, TraceStage]] = []


def _insert(port: StagedPort, stage: Stage) -> None:
    if isinstance(stage, TraceStage):
        _traces.append((port, stage))
    _inserted(port, stage)


def _switch(number: int, frame: object) -> None:
    for port, stage in _traces:
        port.remove(stage)
        if number == ON:
            _inserted(port, stage)


_inserted: Final = StagedPort.insert

if __name__ == "__main__":
    StagedPort.insert = _insert  # type: ignore[method-assign]
    signal.signal(OFF, _switch)
    signal.signal(ON, _switch)
    sys.argv[0] = "acp-conductor"
    main()
