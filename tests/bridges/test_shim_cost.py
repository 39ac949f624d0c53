"""What one shim costs: agents start one per server and session."""

from __future__ import annotations

import subprocess
import sys
import time

from bridges_situation import initialize, shim, situation

BARE = [sys.executable, "-I", "-S", "-c"]
SAY = "print('here', flush=True); import sys; sys.stdin.readline()"


async def test_a_shim_takes_at_most_twelve_megabytes_more_than_a_bare_interpreter():
    async with situation() as on:
        [entry] = await on.declare()
        async with shim(entry) as process:
            await initialize(process)
            ours = _resident(process.pid)
    assert ours - _bare_size() <= 12 * 1024


async def test_a_shim_is_there_within_thirty_milliseconds_of_a_bare_interpreter():
    """The best of several starts: what it takes, not what else the machine does."""
    whole = []
    async with situation() as on:
        [entry] = await on.declare()
        for _ in range(5):
            begun = time.perf_counter()
            async with shim(entry) as process:
                await initialize(process)
                whole.append(time.perf_counter() - begun)
    assert min(whole) - _bare_start() <= 0.030


def _bare_start() -> float:
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([*BARE, "pass"], check=True)
        times.append(time.perf_counter() - begun)
    return min(times)


def _bare_size() -> int:
    with subprocess.Popen([*BARE, SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdout
        bare.stdout.readline()
        size = _resident(bare.pid)
        bare.communicate(b"\n")
    return size


def _resident(pid: int) -> int:
    """Kilobytes."""
    with open(f"/proc/{pid}/status") as status:
        [line] = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1])
