"""Real programs for tests: found, started, waited for, ended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress

import attrs
import pytest

__all__ = ["Program", "free_port", "program"]


def program(name: str) -> str:
    """The path of a program. In CI it is there; elsewhere, its absence skips the test."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        why = f"needs the program {name} (Debian: apt-get install, see .ci/run)"
        pytest.fail(why) if "CI" in os.environ else pytest.skip(why)
    return path


def free_port() -> int:
    """A port of loopback where nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@attrs.define
class Program:
    """A program that listens on a port of loopback, and says so in its output."""

    argv: list[str]
    port: int
    ready: str
    environment: Mapping[str, str] = attrs.field(factory=dict)
    process: subprocess.Popen[str] | None = None
    said: list[str] = attrs.field(factory=list)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if self.ready in line:
                return
        raise RuntimeError(f"{self.argv[0]} ended: {''.join(self.said)}")

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it, with every process that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            rest, _ = self.process.communicate()
            self.said.append(rest)
            self.process = None
