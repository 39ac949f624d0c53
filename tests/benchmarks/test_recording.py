"""Bars for what recording costs: CPU per message against a conductor that records nothing.

The bars are those of docs/development/performance.md: 1.2 for the flight recorder, and 3 for
`--trace`. Slices with and without recording take turns in one process, so that other load changes a
ratio by some hundredths; two starts differ by up to a quarter, so up to `TRIES` are compared.
"""

from __future__ import annotations

import os
import statistics
import sys

import pytest

from .compare import pin_to_one_cpu
from .measures import LOADS
from .recording import FLIGHT, FULL, recording_costs
from .subjects import HERE

BARS = {FLIGHT: 1.2, FULL: 3.0}
TRIES = 8
SLICES = 8
SWITCHED = [sys.executable, "-P", str(HERE / "switched.py")]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a CPU clock in nanoseconds")


@pytest.fixture(autouse=True)
def on_one_cpu():
    before = os.sched_getaffinity(0)
    pin_to_one_cpu()
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("kind", BARS)
@pytest.mark.parametrize(
    ("name", "proxies"), [("small", 0), ("medium", 0), ("sessions", 0), ("sessions", 1)]
)
def test_recording_costs_no_more_than_the_bars(name, proxies, kind):
    ratio = 0.0
    for _ in range(TRIES):
        costs = recording_costs(SWITCHED, kind, LOADS[name], proxies=proxies, slices=SLICES)
        ratio = statistics.median(on / off for on, off in zip(*costs, strict=True))
        if ratio <= BARS[kind]:
            return

    pytest.fail(f"{name}, {proxies} proxies, {kind}: {ratio:.2f} × the CPU without", pytrace=False)
