"""Runs `python -m conductor`, and writes the number of its trio tasks to a descriptor on SIGUSR2.
The log tells the connection id of each client, which is a secret.

python tests/chaos/counted.py DESCRIPTOR ARGUMENT...
"""

import os
import runpy
import signal
import sys
from typing import Any

import trio

from conductor.server import run
from conductor.server.access import Refusal
from conductor.server.clients import ClientRegistry

descriptor = int(sys.argv.pop(1))


def tell(number: int, frame: object) -> None:
    """In the thread of the event loop, as every signal handler."""
    os.write(descriptor, b"%d\n" % trio.lowlevel.current_statistics().tasks_living)


class TellingRegistry(ClientRegistry):
    def admit(self, *given: Any) -> Any:
        client = super().admit(*given)
        if not isinstance(client, Refusal):
            print(f"connection {client.id} is client {client.number}", file=sys.stderr, flush=True)
        return client


run.ClientRegistry = TellingRegistry  # type: ignore[misc]
signal.signal(signal.SIGUSR2, tell)
runpy.run_module("conductor", run_name="__main__", alter_sys=True)
