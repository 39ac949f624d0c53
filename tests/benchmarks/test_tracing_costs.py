"""Bars for what recording costs: CPU per message against a conductor that records nothing.

The bars are those of docs/performance.md: 1.1 for the flight recorder, with 0.05 for the difference
between starts, and 2 for `--trace`. The subjects take turns in short slices, so that other load
changes a ratio by some hundredths; up to `TRIES` starts are compared.
"""

from __future__ import annotations

import os
import sys

import pytest

from .compare import pin_to_one_cpu
from .slices import LOADS, costs_in_slices
from .tracing_costs import FLIGHT, FULL, commands

BARS = {FLIGHT: 1.15, FULL: 2.0}
TRIES = 4
SLICES = 8

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a CPU clock in nanoseconds")


@pytest.fixture(autouse=True)
def on_one_cpu():
    before = os.sched_getaffinity(0)
    pin_to_one_cpu()
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("name", "proxies"), [("small", 0), ("medium", 0), ("sessions", 0), ("sessions", 1)]
)
def test_recording_costs_no_more_than_the_bars(name, proxies, tmp_path):
    compared = commands(tmp_path, proxies)
    for _ in range(TRIES):
        costs = costs_in_slices(compared, LOADS[name], starts=1, slices=SLICES)
        ratios = {each: costs.ratio(each) for each in BARS}
        if all(ratios[each] <= bar for each, bar in BARS.items()):
            return

    shown = ", ".join(f"{recorder} {ratio:.2f}" for recorder, ratio in ratios.items())
    pytest.fail(f"{name}, {proxies} proxies: × the CPU of no recorder: {shown}", pytrace=False)
