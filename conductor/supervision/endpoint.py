"""The endpoint of a link: a child process, a connection to another machine, or a plugin that
restarts in this process.

The supervisor starts, restarts and stops all three through `Endpoint`; `chain/build.py` chooses the
`Launcher` that opens one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol

from conductor.chainfile.model import ComponentSpec
from conductor.transport.base import Transport

__all__ = ["Endpoint", "Launcher", "is_remote"]


class Endpoint(Protocol):
    """One process, or one connection. `transport` reads its output and writes its input."""

    @property
    def transport(self) -> Transport: ...

    @property
    def location(self) -> str:
        """Address for error messages: a URL, a socket path, a command."""

    @property
    def status(self) -> str | None:
        """Its end as a predicate ("exited with status 1"); None while it runs."""

    @property
    def reached(self) -> bool:
        """Whether the process started, or the connection was established."""

    async def wait(self) -> str:
        """Wait for the end and return `status`. A connection runs inside this call."""

    async def read_stderr(self) -> bytes:
        """The next bytes of its stderr; `b""` at EOF."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group; SIGTERM and SIGKILL close a connection."""

    def close(self) -> None:
        """Close the transport."""


Launcher = Callable[[int], Endpoint]
"""Opens an endpoint; the argument is the longest message, in bytes. Raises `SpawnError`."""


def is_remote(spec: ComponentSpec) -> bool:
    """Whether a component runs on another machine, according to its chain file entry."""
    return spec.connect is not None or spec.ssh is not None
