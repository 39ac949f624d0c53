"""What recording costs: CPU per message without a recorder, with the flight recorder, and with
`--trace`. `python -m tests.benchmarks.tracing_costs`

The thread of the trace works after the messages: its time is awaited and counted.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .client import Usage
from .compare import Key, Results, compare, pin_to_one_cpu
from .measures import MEASURES, Numbers
from .report import table
from .subjects import AGENT, HERE, PROXY, Subject

__all__ = ["FLIGHT", "FULL", "OFF", "costs", "subjects"]

OFF, FLIGHT, HEADS, FULL = "off", "flight recorder", "--trace-payloads head", "--trace"
_IDLE = 0.5
"""Seconds in which the control socket is opened, and what was queued is written."""
NAMES = ("round-trip", "question", "small", "single", "medium", "large", "upload", "sessions")


def subjects(directory: Path) -> list[Subject]:
    """The conductor in its four ways to record; trace files go to this directory."""
    trace = ["--trace", str(directory / "trace.jsonl")]
    unrecorded = [sys.executable, str(HERE / "unrecorded.py"), "agent"]
    recorded = [sys.executable, "-m", "conductor", "agent"]
    chains = (0, 1)
    return [
        Subject(OFF, _command(unrecorded), chains),
        Subject(FLIGHT, _command(recorded), chains),
        Subject(HEADS, _command([*recorded, *trace, "--trace-payloads", "head"]), chains),
        Subject(FULL, _command([*recorded, *trace]), chains),
    ]


def _command(start: Sequence[str]) -> Callable[[int], list[str]]:
    return lambda proxies: [*start, *map(shlex.join, [*[PROXY] * proxies, AGENT])]


def count_what_follows() -> None:
    """Let each measure count CPU time from an idle conductor to an idle conductor."""
    begin, end = Usage.__init__, Usage.end

    def begin_later(self: Usage, pid: int) -> None:
        time.sleep(_IDLE)
        begin(self, pid)

    def end_later(self: Usage, messages: int) -> Numbers:
        time.sleep(_IDLE)
        return end(self, messages)

    Usage.__init__ = begin_later  # type: ignore[method-assign]
    Usage.end = end_later  # type: ignore[method-assign]


def costs(results: Results, measure: str, proxies: int) -> dict[str, float]:
    """CPU per message, in microseconds, by the minimum of all rounds."""
    found = {}
    for name in (OFF, FLIGHT, HEADS, FULL):
        numbers = results.rounds.get(Key(name, proxies, measure), ())
        if numbers:
            found[name] = min(each["cpu"] for each in numbers)
    return found


def main() -> None:
    names = sys.argv[1].split(",") if len(sys.argv) > 1 else NAMES
    rounds, scale = (int(sys.argv[2]), float(sys.argv[3])) if len(sys.argv) > 3 else (5, 0.5)
    pin_to_one_cpu()
    count_what_follows()
    measures = [each for each in MEASURES if each.name in names]
    with tempfile.TemporaryDirectory() as directory:
        chains = (0, 1)
        results = compare(
            subjects(Path(directory)), measures, chains=chains, rounds=rounds, scale=scale
        )
    rows = []
    for measure in measures:
        for proxies in chains:
            found = costs(results, measure.name, proxies)
            shown = [f"{cpu:.2f} (×{cpu / found[OFF]:.2f})" for name, cpu in found.items()]
            rows.append([f"{measure.title}, {proxies} proxies", *shown])
    print(table(["", OFF, FLIGHT, HEADS, FULL], rows))
    print(*results.problems.items(), sep="\n")


if __name__ == "__main__":
    main()
