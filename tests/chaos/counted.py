"""Runs `python -m conductor`, and writes the number of its trio tasks to a descriptor on SIGUSR2.

python tests/chaos/counted.py DESCRIPTOR ARGUMENT...
"""

import os
import runpy
import signal
import sys

import trio

descriptor = int(sys.argv.pop(1))


def tell(number: int, frame: object) -> None:
    """In the thread of the event loop, as every signal handler."""
    os.write(descriptor, b"%d\n" % trio.lowlevel.current_statistics().tasks_living)


signal.signal(signal.SIGUSR2, tell)
runpy.run_module("conductor", run_name="__main__", alter_sys=True)
