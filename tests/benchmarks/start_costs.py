"""Time from start to the response to `initialize`: of an agent alone, behind `agent`, and behind
`run FILE`, with an agent that answers at once and one that takes 300 ms; in turn.

`python -m tests.benchmarks.start_costs [--rounds 20] [DIR]`; `DIR` is another checkout of the
conductor. CPU is that of the conductor until the response, in ms: what other load disturbs least.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from .client import Client, cpu_ns
from .report import number, table
from .subjects import AGENT, BARE

SECONDS = 0.3
SLOW_AGENT = [
    *BARE,
    "-c",
    f"import runpy, sys, time; time.sleep({SECONDS}); "
    "runpy.run_path(sys.argv[1], run_name='__main__')",
    AGENT[-1],
]


def commands(path: Path, directory: str | None) -> dict[str, list[str]]:
    """Each command by its title. `path` is a directory for chain files."""
    before = [] if directory is None else ["env", f"PYTHONPATH={directory}"]
    conductor = [*before, sys.executable, "-P", "-m", "conductor"]
    found: dict[str, list[str]] = {}
    for name, agent in (("instant", AGENT), ("slow", SLOW_AGENT)):
        file = path / f"{name}.yaml"
        file.write_text(json.dumps({"version": 1, "agent": {"run": agent}}))
        found[f"{name} agent alone"] = agent
        found[f"{name} agent, `agent`"] = [*conductor, "agent", shlex.join(agent)]
        found[f"{name} agent, `run FILE`"] = [*conductor, "run", str(file)]
    return found


def start(command: list[str]) -> tuple[float, float]:
    """Milliseconds to the response, and of CPU time until then."""
    with Client(command) as client:
        elapsed = client.initialize()
        return elapsed * 1e3, cpu_ns(client.pid) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.start_costs", description=__doc__
    )
    parser.add_argument("directory", metavar="DIR", nargs="?")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        subjects = commands(Path(path), arguments.directory)
        found: dict[str, list[tuple[float, float]]] = {title: [] for title in subjects}
        for _ in range(arguments.rounds):
            for title, command in subjects.items():
                found[title].append(start(command))
    rows, alone = [], (0.0, 0.0)
    for title, times in found.items():
        elapsed = [each[0] for each in times]
        numbers = min(elapsed), statistics.median(elapsed)
        alone = numbers if "alone" in title else alone
        later = [number(mine - theirs) for mine, theirs in zip(numbers, alone, strict=True)]
        cpu = min(each[1] for each in times)
        rows.append([title, *map(number, numbers), *later, number(cpu)])
    heads = ["", "minimum, ms", "median", "later than alone, minima", "medians", "CPU, minimum"]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
