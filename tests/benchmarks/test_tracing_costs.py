"""Bars for what recording costs: CPU per message against a conductor that records nothing.

The bars are those of docs/performance.md: 1.1 for the flight recorder, and for `--trace` 2, or what
is reached where that is more. Other load on the machine changes a ratio by a tenth and more, and
makes it worse more often than better: all rounds so far are compared by their minima, up to `TRIES`
of them, with some tolerance.
"""

from __future__ import annotations

import os
import sys

import pytest

from .client import Usage
from .compare import Results, compare, pin_to_one_cpu
from .measures import MEASURES
from .tracing_costs import FLIGHT, FULL, OFF, costs, count_what_follows, subjects

BARS = {
    ("small", 0): {FLIGHT: 1.1, FULL: 2.3},
    ("medium", 0): {FLIGHT: 1.1, FULL: 2.0},
    ("sessions", 0): {FLIGHT: 1.1, FULL: 2.4},
    ("sessions", 1): {FLIGHT: 1.1, FULL: 2.2},
}
"""By measure and number of proxies."""
TOLERANCE = 1.2
TRIES = 5
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
        found = costs(all_rounds, name, proxies)
        ratios = {recorder: found[recorder] / found[OFF] for recorder in bars}
        if all(ratios[recorder] <= bar * TOLERANCE for recorder, bar in bars.items()):
            return

    shown = ", ".join(f"{recorder} {ratio:.2f}" for recorder, ratio in ratios.items())
    pytest.fail(f"{name}, {proxies} proxies: × the CPU of no recorder: {shown}", pytrace=False)
