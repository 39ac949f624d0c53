"""Threads of the conductor leave signals to the main thread."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from conductor.tracing.trace_file import TraceFile
from conductor.transport.threads import block_signals
from conductor.viewer.trace_source import TraceSource


def blocked(name: str) -> int:
    """The signals that a thread of this process blocks, as a bit mask."""
    (thread,) = (each for each in threading.enumerate() if each.name == name)
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("SigBlk"))
    return int(line.split()[1], 16)


def is_blocked(name: str, number: signal.Signals) -> bool:
    return bool(blocked(name) >> (number - 1) & 1)


def test_a_thread_that_blocks_signals_leaves_the_mask_of_others() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    inside: list[set[signal.Signals | int]] = []

    def run() -> None:
        block_signals()
        inside.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT} <= inside[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_threads_of_traces_and_of_the_viewer_block_them(
    tmp_path: Path, number: signal.Signals
) -> None:
    trace = TraceFile(tmp_path / "t.jsonl")
    trace.recorder("chain").attach([])
    with TraceSource(tmp_path / "t.jsonl") as source:
        while source.state != "following":
            assert source.state != "failed"
            os.sched_yield()
        found = [is_blocked(name, number) for name in ("trace", "trace view")]
    trace.close()

    assert found == [True, True]
