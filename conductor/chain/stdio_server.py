"""Serve one chain on the process's stdin and stdout: signals, exit code, orphan processes.

Exit codes: 0 ended cleanly, 1 failed while running, 2 mistakes in the chain file, 3 did not start,
128+n ended by signal n. The first SIGINT, SIGTERM or SIGHUP stops the chain in order, the second
one kills its components.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from conductor.chain.chain import Chain
from conductor.chain.components import ChainSpec
from conductor.chain.login_words import TerminalLogin
from conductor.chain.shutdown import Ending, abandoned_plugins
from conductor.chain.start_failure import FailureContext
from conductor.chain.watchdog import watchdog
from conductor.control.process import close_control, open_control
from conductor.errors import ConnectionClosed
from conductor.exit_codes import ExitCode
from conductor.log import get_logger, release, report_skipped
from conductor.tracing.recorder import TraceRecorder
from conductor.transport.child_process import reap_orphans
from conductor.transport.epoll_loop import EpollFastPath
from conductor.transport.fd_transport import FdTransport
from conductor.transport.inherited_stdio import open_missing_stdio
from conductor.transport.local_command import LEAK_HELP, leaked_variables
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants
from conductor.transport.stdio import claim_stdio, restore_blocking

if TYPE_CHECKING:
    from conductor.chain.session_chains import ChainChoice
    from conductor.tracing.trace_writer import TraceWriter

__all__ = ["exit_code", "exit_now", "serve_stdio"]

log: Final = get_logger(component="conductor")
_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_LAST_WRITE_TIMEOUT = 1.0
"""Seconds that the client has to read its answers before the watchdog exits the process."""

_EXIT_CODES: Final = {
    "client": ExitCode.DONE,
    "stopped": ExitCode.DONE,
    "failed": ExitCode.FAILED,
    "never started": ExitCode.NOT_STARTED,
}


def serve_stdio(
    spec: ChainSpec,
    *,
    name: str = "conductor",
    trace: TraceWriter | None = None,
    recorder: TraceRecorder | None = None,
    failure_context: FailureContext | None = None,
    unusable: bool = False,
    choice: ChainChoice | None = None,
    terminal_login: TerminalLogin = "kept",
) -> NoReturn:
    """Serve until the chain ends, then exit the process; see the exit codes above.

    `failure_context`, `choice`, `terminal_login`: see `Chain`.
    `name` is that of the chain in traces; without a `trace` file, only the flight recorder runs.
    `recorder`: of a plugin's process, which is not a conductor for `ps` and has none of both.
    `unusable`: the chain file is known to have mistakes; the exit code is 2 unless the chain starts
    after all.
    """
    open_missing_stdio()
    if recorder is None:
        for variable, value in leaked_variables(os.environ).items():
            help = LEAK_HELP.format(name=variable)
            log.warning("variable of the editor's package", name=variable, value=value, help=help)
        open_control(trace)
        recorder = TraceRecorder(name) if trace is None else trace.recorder(name)
    become_subreaper()
    start_orphan_guard()
    signals: list[int] = []

    outcome: list[tuple[Ending, bool]] = []

    def end_rest() -> None:
        kill_descendants()
        if trace is not None:
            trace.close()

    def leave() -> NoReturn:
        end_rest()
        (ending, started) = outcome[0]
        code = exit_code(ending, signals)
        exit_now(2 if unusable and not started and not signals else code)

    async def main() -> None:
        async with abandoned_plugins(leave) as plugins:
            outcome.append(await serve_chain(plugins))

    async def serve_chain(plugins: trio.Nursery) -> tuple[Ending, bool]:
        with claim_stdio() as transport, EpollFastPath.installed():
            chain = Chain(
                transport,
                spec,
                recorder=recorder,
                plugin_nursery=plugins,
                failure_context=failure_context,
                choice=choice,
                terminal_login=terminal_login,
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(_handle_signals, chain, signals, transport)
                nursery.start_soon(reap_orphans)
                ending = await chain.run()
                nursery.cancel_scope.cancel()
        return ending, chain.initialized.is_set()

    try:
        trio.run(main)
    except BaseException:
        end_rest()
        close_control()
        raise
    leave()


def exit_code(ending: Ending, signals: Sequence[int]) -> int:
    """The exit code for how a chain ended; `signals` are the numbers of received signals."""
    if signals:
        return 128 + signals[0]
    return _EXIT_CODES[ending.reason]


def exit_now(code: int) -> NoReturn:
    """Flush and exit without the interpreter's shutdown, which takes 20 ms."""
    close_control()
    release()
    report_skipped()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def _handle_signals(
    chain: Chain,
    received: list[int],
    transport: FdTransport,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with (
        trio.open_signal_receiver(*_SIGNALS) as signals,
        watchdog(
            chain.spec.stop_timeout,
            _SIGNALS,
            client_fd=transport.read_fd,
            before_exit=partial(_leave_stdio, chain, transport),
        ),
    ):
        task_status.started()
        async for number in signals:
            received.append(number)
            if len(received) == 1:
                chain.stop()
            else:
                chain.kill()


def _leave_stdio(chain: Chain, transport: FdTransport) -> None:
    """Write what waits for the client, and restore O_NONBLOCK; called by the watchdog's thread."""
    connection, end = chain.client.connection, time.monotonic() + _LAST_WRITE_TIMEOUT
    # If the client is gone, the transport closes itself, which only its own thread can.
    with suppress(ConnectionClosed, RuntimeError):
        while connection is not None and not connection.write_buffer.flush(transport.write_now):
            if not transport.poll_writable(end - time.monotonic()):
                break
    restore_blocking()
