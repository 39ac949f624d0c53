"""Signals and threads: the main thread takes all signals.

A process-directed signal goes to any thread that does not block it; in another thread it would not
interrupt a `time.sleep` of a plugin in the main thread, and Python's handler waits for that one.
Threads inherit the mask of the thread that starts them.
"""

from __future__ import annotations

import signal

__all__ = ["block_signals"]


def block_signals() -> None:
    """Leave signals to the main thread; called first by each other thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
