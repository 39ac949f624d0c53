"""What recording costs: CPU per message without a recorder, with the flight recorder, and with
`--trace`. `python -m tests.benchmarks.tracing_costs [LOADS [STARTS SLICES]]`

The thread of the trace works after the messages: its time is awaited and counted.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .compare import pin_to_one_cpu
from .report import table
from .slices import LOADS, Costs, costs_in_slices
from .subjects import AGENT, HERE, PROXY

__all__ = ["FLIGHT", "FULL", "commands"]

FLIGHT, FULL = "flight recorder", "--trace"


def commands(directory: Path, proxies: int) -> dict[str, list[str]]:
    """The conductor in its two ways to record; trace files go to this directory."""
    chain = list(map(shlex.join, [*[PROXY] * proxies, AGENT]))
    recorded = [sys.executable, str(HERE / "switched.py"), "agent"]
    return {
        FLIGHT: [*recorded, *chain],
        FULL: [*recorded, "--trace", str(directory / "trace.jsonl"), *chain],
    }


def main(arguments: Sequence[str]) -> None:
    names = arguments[0].split(",") if arguments else list(LOADS)
    starts, slices = map(int, arguments[1:3]) if len(arguments) > 2 else (5, 20)
    pin_to_one_cpu()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            for proxies in (0, 1):
                compared = commands(Path(directory), proxies)
                costs = costs_in_slices(compared, LOADS[name], starts=starts, slices=slices)
                shown = [f"{costs.lowest_off():.3g}", _shown(costs, FLIGHT), _shown(costs, FULL)]
                title = f"{LOADS[name].title}, {proxies} proxies"
                rows.append([title, *shown])
                print(*rows[-1], sep="; ", file=sys.stderr)
    print(table(["", "off", FLIGHT, FULL], rows))


def _shown(costs: Costs, name: str) -> str:
    ratios = costs.ratios(name)
    return (
        f"{costs.lowest(name):.3g} (×{costs.ratio(name):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
