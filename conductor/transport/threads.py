"""Threads: signals are left to the main thread; the epoll fast path of a thread tells when it woke
up, the time of all messages that are routed then.

A process-directed signal goes to any thread that does not block it; in another thread it would not
interrupt a `time.sleep` of a plugin in the main thread, and Python's handler waits for that one.
Threads inherit the mask of the thread that starts them.

The fast path reads the clock once each time that it wakes up. A recorder that reads it again for
each message would spend more on that than on the rest of a record (0.1 µs, and 0.3 where the
processor's caches have other things in them).
"""

from __future__ import annotations

import signal
import threading
from typing import Final

__all__ = ["WakeUp", "block_signals", "wake_up_of_thread"]


def block_signals() -> None:
    """Leave signals to the main thread; called first by each other thread."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


class WakeUp:
    """The current wake-up of one thread."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time: float = 0.0
        """In seconds of the monotonic clock; 0 while the fast path serves nothing."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.wake_up = WakeUp()


_local: Final = _Local()


def wake_up_of_thread() -> WakeUp:
    """The `WakeUp` of the calling thread; always the same object."""
    return _local.wake_up
