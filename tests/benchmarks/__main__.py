"""The benchmark: `python -m tests.benchmarks` in the root of the repository."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from . import __doc__ as about
from .compare import Key, Results, compare, pin_to_one_cpu
from .measures import MEASURES
from .plots import bars
from .report import number, table, tables
from .scale import SCALES, measure_all
from .subjects import ROOT, SUBJECTS


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=about)
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="cost over sessions, open requests, proxies and time, instead of the comparison",
    )
    parser.add_argument("--only", metavar="NAME,…", help=", ".join(each.name for each in SUBJECTS))
    parser.add_argument(
        "--measures",
        metavar="NAME,…",
        help=", ".join([*(m.name for m in MEASURES), *(s.name for s in SCALES)]),
    )
    parser.add_argument("--chains", default="0,1,3", metavar="N,…", help="numbers of proxies")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a factor for how much is sent")
    parser.add_argument("--free", action="store_true", help="do not keep everything on one CPU")
    parser.add_argument(
        "--out", type=Path, default=ROOT / ".cache" / "benchmarks", help="where the plot goes"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if not arguments.free:
        pin_to_one_cpu()
    if arguments.scaling:
        run_scaling(arguments)
    else:
        run_comparison(arguments)


def run_comparison(arguments: argparse.Namespace) -> None:
    measures = chosen(MEASURES, arguments.measures)
    results = compare(
        chosen(SUBJECTS, arguments.only),
        measures,
        chains=[int(each) for each in arguments.chains.split(",")],
        rounds=arguments.rounds,
        scale=arguments.scale,
    )
    print(tables(results, measures))
    groups = {m.title: group for m in measures if (group := cpu_of(results, m.name))}
    if groups:
        arguments.out.mkdir(parents=True, exist_ok=True)
        plot = arguments.out / "comparison.svg"
        plot.write_text(bars("CPU, µs per message (logarithmic)", groups))
        print(f"\n{plot}")


def cpu_of(results: Results, measure: str) -> dict[str, float]:
    keys = [Key(subject, proxies, measure) for subject, proxies in results.rows()]
    return {key.label: cpu for key in keys if (cpu := results.median(key, "cpu")) is not None}


def run_scaling(arguments: argparse.Namespace) -> None:
    scales = chosen(SCALES, arguments.measures)
    found = measure_all(scales, rounds=arguments.rounds, factor=arguments.scale)
    for scale in scales:
        heads = [scale.axis, *[f"{x:,}" for x in scale.values]]
        rows = [[s, *[number(y) for _, y in points]] for s, points in found[scale.name].items()]
        print(table(heads, rows), end="\n\n")


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def chosen(things: Sequence[T], names: str | None) -> list[T]:
    if names is None:
        return list(things)
    wanted = names.split(",")
    unknown = set(wanted) - {each.name for each in things}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}")
    return [each for each in things if each.name in wanted]


main()
