"""A `serve` in a process of its own, for the growth test: what it has."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import psutil
import trio
from chaos.clients import Device
from support.peers.process import COMPONENTS, is_guard

__all__ = ["CHAIN", "PLUGIN_CHAIN", "Census", "Server", "open_server"]

COUNTED = Path(__file__).with_name("counted.py")
KEEP = 15.0
"""Seconds that the server keeps the chain of a client that is detached. An HTTP client is detached
until it opens its first stream. Where clients and server have a fifth of a CPU, that takes more
than 5 s: then it gets 404."""
USAGE = """\
version: 1
proxies:
  - use: usage
"""
PROGRAM = """\
agent:
  # Leaves grandchildren without a parent at each start: the server must reap one and end the other.
  run: [sh, -c, '(sleep 0.05 &); (setsid sleep 3600 &); exec "$0" "$@"', {python}, -S, {agent}]
"""
PLUGIN = "agent:\n  use: test-agent\n"
CHAIN, PLUGIN_CHAIN = USAGE + PROGRAM, USAGE + PLUGIN


@attrs.frozen
class Census:
    """What a server has, at a moment at which it has no clients; its guard is not counted."""

    processes: int
    zombies: int
    descriptors: int
    threads: int
    tasks: int
    memory: int


@attrs.frozen
class Server:
    url: str
    process: psutil.Process
    tasks: int
    """The descriptor that its number of tasks is read from."""
    token: str
    keep: float

    def device(self) -> Device:
        return Device(self.url, self.token, random.Random(0))

    def census(self) -> Census:
        children = [each for each in self.process.children(recursive=True) if not is_guard(each)]
        states = [state for child in children if (state := _status(child)) is not None]
        zombies = states.count(psutil.STATUS_ZOMBIE)
        return Census(
            processes=len(states) - zombies,
            zombies=zombies,
            descriptors=self.process.num_fds(),
            threads=self.process.num_threads(),
            tasks=self._count_tasks(),
            memory=self.process.memory_info().rss,
        )

    def _count_tasks(self) -> int:
        self.process.send_signal(signal.SIGUSR2)
        return int(os.read(self.tasks, 16))

    async def at_rest(self, *, patience: float = 30.0) -> Census:
        """The census once no component is left, or after `patience` seconds."""
        with trio.move_on_after(patience):
            while self.census().processes or self.census().zombies:  # noqa: ASYNC110
                await trio.sleep(0.2)
        await trio.sleep(self.keep + 2)
        return self.census()


def _status(process: psutil.Process) -> str | None:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return None


@contextmanager
def open_server(chain: str, keep: float = KEEP) -> Iterator[Server]:
    """A `serve` in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        path, tokens = Path(directory) / "chain.yaml", Path(directory) / "tokens"
        names = {"python": sys.executable, "agent": COMPONENTS / "echo_agent.py"}
        for name, value in names.items():
            chain = chain.replace(f"{{{name}}}", str(value))
        path.write_text(chain, "utf-8")
        token = f"busy-{'0123456789abcdef' * 2}"
        tokens.write_text(f"busy:{token}\n")
        tokens.chmod(0o600)
        read, write = os.pipe()
        command = [
            *(sys.executable, str(COUNTED), str(write), "--log", "info", "serve", str(path)),
            *("--listen", "127.0.0.1:0", "--token-file", str(tokens), "--keep", str(keep)),
        ]
        log = Path(directory) / "log"
        environment = {"TMPDIR": directory, "XDG_STATE_HOME": directory}
        with log.open("w") as stderr:
            popen = subprocess.Popen(
                command, stderr=stderr, pass_fds=[write], env=os.environ | environment
            )
        try:
            while (found := re.search(r"listening on (\S+)\n", log.read_text())) is None:
                assert popen.poll() is None, log.read_text()
                time.sleep(0.05)
            yield Server(found[1], psutil.Process(popen.pid), read, token, keep)
        finally:
            popen.terminate()
            try:
                popen.wait(60)
            except subprocess.TimeoutExpired:
                popen.kill()
            popen.wait()
            os.close(read)
            os.close(write)
