"""The command `acp-conductor`.

One module per command, with the click command as `command`, imported when it is used; the list is
in `command_group.py`. `chain_run.py` is the chain of a command, served on stdin and stdout;
`usage_errors.py` reports wrong arguments. A command of several modules is a package with
`command.py`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

from conductor.exit_codes import ExitCode

__all__ = ["main"]

_FEW_DESCRIPTORS = 64
"""With a lower limit, a module that cannot be imported is one that cannot be opened."""


def main() -> None:
    """The entry point of the console script."""
    try:
        _run()
    except Exception as exc:
        if not _lacks_descriptors(exc):
            raise
        limit = os.sysconf("SC_OPEN_MAX")
        print(
            f"Error: too many open files: the limit of this process is {limit} (ulimit -n); "
            f"raise it, for example with `ulimit -n 1024`, where acp-conductor is started",
            file=sys.stderr,
        )
        sys.exit(ExitCode.NOT_STARTED)


def _lacks_descriptors(exc: BaseException | None) -> bool:
    """Whether an error, or one that it was raised for, is that no descriptor is free."""
    if exc is None:
        return False
    if isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE):
        return True
    if isinstance(exc, ImportError) and os.sysconf("SC_OPEN_MAX") < _FEW_DESCRIPTORS:
        return True
    members: tuple[BaseException, ...] = getattr(exc, "exceptions", ())
    return any(map(_lacks_descriptors, (*members, exc.__cause__)))


def _run() -> None:
    # A conductor that still waits for its client has nothing that the flight recorder could write.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    from conductor.cli.command_group import run_command

    run_command(sys.argv[1:])
