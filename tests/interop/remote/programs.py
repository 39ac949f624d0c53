"""The programs of these tests, for as long as a block lasts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import yaml
from support.log_lines import without_slow_starts

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PATIENCE = 30.0
"""Seconds; only what hangs takes that long."""

Command = Sequence[str]


@contextmanager
def served(
    directory: Path,
    agent: dict[str, Any] | None = None,
    *options: str,
    more: dict[str, Any] | None = None,
) -> Iterator[str]:
    """`acp-conductor serve`, and the host and port it listens at; `more` of the chain file.

    At the end it is asked to end, and must, once all of its clients are gone.
    """
    chain = {"version": 1, "agent": agent or {"use": "test-agent"}, **(more or {})}
    (directory / "chain.yaml").write_text(yaml.safe_dump(chain))
    command = ["serve", str(directory / "chain.yaml"), "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "conductor", *command],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    with process.stderr as said:
        line = said.readline()
        rest: list[str] = []
        reading = Thread(
            target=rest.extend, args=(said,)
        )  # or its drain would wait for this client
        reading.start()
        try:
            assert "listening on" in line, line
            yield line.split("//")[1].removesuffix("/acp\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()
            process.wait()
            reading.join()
    unusual = [line for line in without_slow_starts(rest) if "[info " not in line]
    assert not unusual, "".join(unusual)


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)
