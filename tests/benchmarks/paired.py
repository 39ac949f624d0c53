"""This conductor and an older one in turn, with the same agent, proxies and client:
`git archive REVISION | tar x -C DIR`, then `python -m tests.benchmarks.paired DIR`.

Minima, medians, and their ratios. The smallest of many rounds is what other load disturbs least.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys

from .compare import pin_to_one_cpu
from .measures import MEASURES
from .report import number, table
from .subjects import AGENT, PROXY


def command(directory: str | None, proxies: int) -> list[str]:
    """`agent` of the conductor in a directory; of this one, if there is none."""
    words = map(shlex.join, [*[PROXY] * proxies, AGENT])
    path = [] if directory is None else ["env", f"PYTHONPATH={directory}"]
    return [*path, sys.executable, "-P", "-m", "conductor", "agent", *words]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.paired", description=__doc__)
    parser.add_argument("older", metavar="DIR", help="a checkout of the older conductor")
    parser.add_argument("--measures", default="large,upload", metavar="NAME,…")
    parser.add_argument("--number", default="cpu", help="of what is measured (cpu, start, p50, …)")
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    pin_to_one_cpu()
    commands = [command(each, arguments.proxies) for each in (arguments.older, None)]
    rows = []
    for measure in MEASURES:
        if measure.name not in arguments.measures.split(","):
            continue
        found = [
            [measure(each, arguments.scale)[arguments.number] for each in commands]
            for _ in range(arguments.rounds)
        ]
        for name, of in (("minimum", min), ("median", statistics.median)):
            older, this = (of(column) for column in zip(*found, strict=True))
            rows.append([measure.title, name, number(older), number(this), f"{this / older:.2f}"])
    print(table(["", "", "older", "this", "ratio"], rows))


if __name__ == "__main__":
    main()
