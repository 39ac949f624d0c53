"""A report although a plugin blocks the event loop in which its chain is tried.

The limit of a trial cannot end it then: a thread reports instead, and ends the process.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

import trio

from conductor.chain.blocking_log import blocked_by
from conductor.cli.doctor.finding import Finding

__all__ = ["blocked_finding", "reported_if_blocked"]

_PATIENCE: Final = 1.0
"""Seconds in which a loop that is not blocked replies."""


@contextmanager
def reported_if_blocked(seconds: float, report: Callable[[Finding], NoReturn]) -> Iterator[None]:
    """Call `report`, in a thread, if the loop of this thread is blocked `seconds` after the begin
    of the block, or later on before its end. `report` ends the process."""
    token, loop_thread = trio.lowlevel.current_trio_token(), threading.get_ident()
    ended, reporting = threading.Event(), threading.Lock()

    def watch() -> None:
        wait = seconds
        while not ended.wait(wait):
            replied = threading.Event()
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(replied.set)
            if not replied.wait(_PATIENCE):
                with reporting:
                    if not ended.is_set():
                        report(blocked_finding(sys._current_frames().get(loop_thread)))
            wait = _PATIENCE

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with reporting:  # a report that has begun ends the process
            ended.set()


def blocked_finding(frame: FrameType | None) -> Finding:
    """The finding about a blocked loop, by its innermost frame."""
    told = blocked_by(frame)
    plugin, place = told.get("plugin"), told.get("at", "an unknown place")
    if plugin is None:
        return Finding("error", "start", f"the event loop is blocked at {place}")
    message = f"{plugin} blocks the event loop, and so the whole chain, at {place}"
    help = "let the plugin wait with `await trio.sleep(…)` and trio's functions, compute in "
    help += "`await trio.to_thread.run_sync(…)`, and do nothing long while it is imported; "
    help += "`isolate: true` gives it a process of its own"
    return Finding("error", "start", message, help)
