"""What one shim costs: agents start one per server and session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from support.bridge_harness import initialize, shim, situation

T = TypeVar("T")
BARE = [sys.executable, "-I", "-S", "-c"]
SAY = "print('here', flush=True); import sys; sys.stdin.readline()"


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="Linux counts it")
async def test_a_shim_takes_fifteen_milliseconds_of_cpu_more_than_a_bare_interpreter():
    """From its start until it has answered. CPU time, which the machine's other work is not in;
    the best of several, since caches are."""
    async with situation() as on:
        [entry] = await on.declare()
        shims = []
        for _ in range(5):
            async with shim(entry) as process:
                await initialize(process)
                shims.append(_cpu_seconds(process.pid))
    assert min(shims) - min(_bare(_cpu_seconds) for _ in range(5)) <= 0.015


def _bare(measure: Callable[[int], T]) -> T:
    """What a bare interpreter takes that has just started."""
    with subprocess.Popen([*BARE, SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdout
        bare.stdout.readline()
        measured = measure(bare.pid)
        bare.communicate(b"\n")
    return measured


def _cpu_seconds(pid: int) -> float:
    """Of all threads. The nanoseconds are exact; those of `times` are ticks of ten milliseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
