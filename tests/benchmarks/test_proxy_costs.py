"""Bars for the CPU time of the ready-made proxies per message, in microseconds.

The bars are for the machine of docs/development/performance.md. On a slower or busier one they grow
with the time of a reference computation, measured right before. A bar that is missed is tried
again.
"""

from __future__ import annotations

import json
import time

import pytest

from .proxy_costs import MESSAGES, PROXIES, OtherKind, measure

BARS = {
    "update of 100 B": 25,
    "update of 4 KiB": 80,
    "update of 4 KiB, one word": 80,
    "prompt of 1 MiB": 6000,
}
TRIES = 5
REFERENCE = 1050
"""Microseconds of CPU time of `_reference` on the machine of the bars."""


@pytest.mark.parametrize("title", BARS)
async def test_five_proxies_in_one_chain(title):
    await _check(lambda: [create() for create in PROXIES.values()], title, BARS[title])


async def test_a_handler_of_a_kind_that_does_not_occur():
    await _check(lambda: [OtherKind()], "update of 100 B", 1)


async def _check(proxies, title, bar):
    missed = []
    for _ in range(TRIES):
        allowed = bar * max(1, _reference() / REFERENCE)
        time_of_message = await measure(proxies(), MESSAGES[title])
        if time_of_message <= allowed:
            return
        missed.append(f"{time_of_message:.1f} of {allowed:.1f}")
    pytest.fail(f"{title}, µs of CPU time: {', '.join(missed)}", pytrace=False)


def _reference():
    """Microseconds of CPU time to decode 1 MiB of text and count to 20,000; the least of 12."""
    text = json.dumps(MESSAGES["prompt of 1 MiB"].params.decode())
    best = float("inf")
    for _ in range(12):
        start = time.process_time_ns()
        json.loads(text)
        for _ in range(20_000):
            pass
        best = min(best, time.process_time_ns() - start)
    return best / 1000
