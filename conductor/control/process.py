"""Control socket and SIGUSR1 of this process: `open_control` at its start, `close_control` at its
end.

The socket is opened by a thread, a moment after the start, so that neither the start of a chain nor
the answer to `initialize` waits for it. SIGUSR1 writes the flight recorder, already before that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from conductor.control.running_chains import flights
from conductor.transport.threads import block_signals

if TYPE_CHECKING:
    from types import FrameType
    from typing import Literal

    from conductor.control.running_chains import Flight
    from conductor.control.server import ControlServer
    from conductor.tracing.trace_writer import TraceWriter

__all__ = ["close_control", "open_control"]

_DELAY = 0.25
"""Seconds from the start to the opening of the socket."""
_CLOSE_TIMEOUT = 5.0
_AFTER_FAILURE = 0.5
"""Seconds after a failure that the file also covers."""
_COMMANDS = ("run", "agent", "wrap", "proxy", "serve", "connect", "prompt")
"""Commands with a control socket; `ps` shows the first of them on the command line."""

_server: ControlServer | None = None
_closing = threading.Event()
_lock = threading.Lock()
_dumps: list[threading.Thread] = []


def open_control(trace: TraceWriter | None) -> None:
    """Listen on the control socket and to SIGUSR1. `trace` records the chains."""
    from conductor.tracing.recorder import on_failure

    path = None if trace is None else str(getattr(trace, "path", "")) or None
    if path is not None:  # as another process finds it
        path = os.path.abspath(path)
    command = next((word for word in sys.argv[1:] if word in _COMMANDS), "")
    opening = threading.Thread(target=_open, args=(command, path), name="control", daemon=True)
    opening.start()
    if trace is None:
        on_failure(lambda: _dump("failure"))
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGUSR1, _on_signal)


def close_control() -> None:
    """Remove the socket; wait for flight recorders that are being written."""
    _closing.set()
    with _lock:
        if _server is not None:
            _server.close()
    for thread in _dumps:
        thread.join(_CLOSE_TIMEOUT)


def _open(command: str, trace: str | None) -> None:
    global _server
    block_signals()
    if _closing.wait(_DELAY):
        return
    from conductor.log import get_logger

    try:
        from conductor.control.client import remove_stale_sockets
        from conductor.control.server import ControlServer

        server = ControlServer(command, trace)
        with _lock:
            if _closing.is_set():
                return
            server.open()
            _server = server
    except (OSError, ImportError) as exc:  # no free descriptor, for example
        get_logger(component="control").debug("no control socket", error=str(exc))
        return
    remove_stale_sockets()
    server.serve()


def _on_signal(number: int, frame: FrameType | None) -> None:
    _dump("signal")


def _dump(reason: Literal["failure", "signal"]) -> None:
    """Write the flight recorder, in a thread: encoding it takes 50 ms.

    Called while a failure is logged: raises nothing, and opens no file in this thread, not even for
    an import, since the failure may be that there is no free descriptor.
    """
    _dumps[:] = [each for each in _dumps if each.is_alive()]
    if reason == "failure" and _dumps:
        return  # one failure has led to another, or a file is being written
    thread = threading.Thread(target=_write, args=(flights(), reason), daemon=True)
    with suppress(RuntimeError):  # no more threads can be started
        thread.start()
        _dumps.append(thread)


def _write(recorded: list[Flight], reason: str) -> None:
    block_signals()
    if reason == "failure":
        _closing.wait(_AFTER_FAILURE)
    try:
        from conductor.control.flight import write_flight
    except (OSError, ImportError) as exc:
        from conductor.log import get_logger

        get_logger(component="trace").warning("flight recorder not written", error=str(exc))
        return
    write_flight(recorded, reason)
