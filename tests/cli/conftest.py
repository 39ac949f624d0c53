"""Commands run as a user runs them: real processes, pipes and pseudo-terminals."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest
from support.leftovers import adopt_orphans, descendants, left_behind

PATIENCE = 30  # seconds; only a hanging program takes that long
COMMAND = [sys.executable, "-m", "conductor"]
AGENT = f"{sys.executable} -m conductor.testing.agent"
COMPONENTS = Path(__file__).parents[1] / "support" / "components"
PASS_PROXY = COMPONENTS / "pass_proxy.py"
STUBBORN = f"{sys.executable} {COMPONENTS}/misbehave.py --ignore-term --no-read session/prompt"
"""An agent that, once it has a prompt, ignores everything: cancellations, EOF and SIGTERM."""


@pytest.fixture
def run(command_server, tmp_path):
    """Run `acp-conductor`; returns the result of `subprocess.run`.

    Tests share the time of the imports (`CommandServer`), except those of commands that start
    components before they import.
    """

    def run(*arguments, input="", env=None, cwd=tmp_path):
        is_early = not {"agent", "proxy", "run", "wrap"}.isdisjoint(arguments[:1])
        is_python_set = any(name.startswith("PYTHON") for name in env or ())
        run = _start if is_early or is_python_set else command_server.run
        env = {**os.environ, **(env or {})}
        return run([*map(str, arguments)], input=input, cwd=cwd, env=env, timeout=PATIENCE)

    return run


def _start(arguments, **options):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, **options)


@pytest.fixture
def chain_file(tmp_path):
    """Write a chain file; returns its path."""

    def write(text, name="chain.yaml"):
        path = tmp_path / name
        path.write_text("version: 1\n" + text)
        return path

    return write


def screen(seen, columns=80):
    """The lines on a terminal on which this was written."""
    shown = pyte.Screen(columns, 50)
    pyte.Stream(shown).feed(seen.replace("\n", "\r\n"))
    return [line.rstrip() for line in shown.display if line.strip()]


class Terminal:
    """`acp-conductor` on a terminal of its own."""

    def __init__(self, arguments, cwd, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(1, (24, 80))
            os.chdir(cwd)
            env = {**os.environ, "TERM": "dumb", **env}
            os.execve(sys.executable, [*COMMAND, *map(str, arguments)], env)
        self.seen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def wait_for(self, text):
        """Read until the terminal shows this text."""
        self.wait_until(lambda seen: text in seen)

    def wait_until(self, shown):
        """Read until `shown`, called with all that was written, is true."""
        deadline = time.monotonic() + PATIENCE
        while not shown(self.seen):
            assert select.select([self.fd], [], [], deadline - time.monotonic())[0], self.seen
            try:
                chunk = os.read(self.fd, 4096)
            except OSError:  # Linux: the last process that had the terminal is gone
                chunk = b""
            assert chunk, self.seen
            self._show(chunk)

    def _show(self, chunk):
        self.seen = (self.seen + self._decoder.decode(chunk)).replace("\r\n", "\n")

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def exit_code(self):
        try:
            while chunk := os.read(self.fd, 4096):
                self._show(chunk)
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(tmp_path):
    """Start `acp-conductor` on a terminal, by default one that is dumb."""
    return lambda *arguments, env=None: Terminal(arguments, tmp_path, env or {})


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    adopt_orphans()
    before = descendants()
    yield
    assert left_behind(before) == []
