"""The command `acp-conductor`.

One module per command, with the click command as `command`, imported when it is used; the list is
in `command_group.py`. `chain_run.py` is the chain of a command, served on stdin and stdout;
`usage_errors.py` reports wrong arguments. A command of several modules is a package with
`command.py`.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of the console script."""
    # A conductor that still waits for its client has nothing that the flight recorder could write.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    from conductor.cli.command_group import run_command

    run_command(sys.argv[1:])
