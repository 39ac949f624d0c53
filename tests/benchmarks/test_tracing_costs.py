"""Bars for what recording costs: CPU per message against a conductor that records nothing.

The bars are those of docs/performance.md: 1.1 for the flight recorder, and for `--trace` 2, or what
is reached where that is more. Other load on the machine changes a ratio by a tenth and more: up to
`TRIES` rounds are compared, by their minima and by the median of the rounds, with some tolerance.
One lucky round of the conductor that records nothing spoils the minima for good, a busy time the
median.
"""

from __future__ import annotations

import os
import statistics
import sys

import pytest

from .client import Usage
from .compare import Key, Results, compare, pin_to_one_cpu
from .measures import MEASURES
from .tracing_costs import FLIGHT, FULL, OFF, count_what_follows, subjects

BARS = {
    ("small", 0): {FLIGHT: 1.1, FULL: 2.3},
    ("medium", 0): {FLIGHT: 1.1, FULL: 2.0},
    ("sessions", 0): {FLIGHT: 1.1, FULL: 2.4},
    ("sessions", 1): {FLIGHT: 1.1, FULL: 2.2},
}
"""By measure and number of proxies."""
TOLERANCE = 1.2
TRIES = 8
SCALE = 0.5

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a CPU clock in nanoseconds")


@pytest.fixture(autouse=True)
def on_one_cpu(monkeypatch):
    before = os.sched_getaffinity(0)
    pin_to_one_cpu()
    for name in ("__init__", "end"):  # replaced by count_what_follows
        monkeypatch.setattr(Usage, name, getattr(Usage, name))
    count_what_follows()
    yield
    os.sched_setaffinity(0, before)


def ratio_to_off(results: Results, recorder: str, name: str, proxies: int) -> float:
    """The smaller of the ratio of the minima and the median of the rounds' ratios."""
    own, off = (
        [each["cpu"] for each in results.rounds[Key(subject, proxies, name)]]
        for subject in (recorder, OFF)
    )
    ratios = [mine / other for mine, other in zip(own, off, strict=True)]
    return min(min(own) / min(off), statistics.median(ratios))


@pytest.mark.parametrize(("name", "proxies"), BARS)
def test_recording_costs_no_more_than_the_bars(name, proxies, tmp_path):
    bars = BARS[name, proxies]
    measures = [measure for measure in MEASURES if measure.name == name]
    compared = [each for each in subjects(tmp_path) if each.name in (OFF, *bars)]
    all_rounds = Results()
    for _ in range(TRIES):
        results = compare(
            compared, measures, chains=(proxies,), rounds=1, scale=SCALE, progress=None
        )
        assert not results.problems
        for key, numbers in results.rounds.items():
            all_rounds.rounds.setdefault(key, []).extend(numbers)
        ratios = {each: ratio_to_off(all_rounds, each, name, proxies) for each in bars}
        if all(ratios[recorder] <= bar * TOLERANCE for recorder, bar in bars.items()):
            return

    shown = ", ".join(f"{recorder} {ratio:.2f}" for recorder, ratio in ratios.items())
    pytest.fail(f"{name}, {proxies} proxies: × the CPU of no recorder: {shown}", pytrace=False)
