"""A home directory for each editor, and `install` and `uninstall` in it.

The editors are programs on PATH (`nvim`, `emacs`, `toad`). Their plugins are in no package
registry: `EDITOR_PLUGINS` names the directory of their checkouts, each under the name of its
repository. Without one of them the test is skipped with the reason, also in CI.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pyte
import pytest

HERE = Path(__file__).parent
CHAIN = """\
version: 1
name: review
proxies:
  - use: ./mark.py:Mark
agent:
  run: [PYTHON, -m, conductor.testing.agent]
"""
MARK = """\
import attrs
from conductor.proxy import Proxy, on_text


@attrs.define
class Mark(Proxy):
    "Shows that an answer went through the chain."

    @on_text
    async def mark(self, session, text):
        return f"[chain] {text}"
"""
PATIENCE = 120  # seconds; only an editor that hangs takes that long


@attrs.frozen
class Desk:
    """A home directory, and a project in it with `review.yaml` and `mark.py`."""

    home: Path
    env: Mapping[str, str]
    plugins: Path

    @property
    def project(self) -> Path:
        return self.home / "project"

    def write(self, name: str, text: str) -> None:
        """A file below the home directory, `PLUGINS` and `PYTHON` in its text replaced."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace("PLUGINS", str(self.plugins)).replace("PYTHON", sys.executable)
        path.write_text(text)

    def acp_conductor(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "conductor", *words)

    def run(self, *words: str) -> str:
        """Run a command that must succeed; returns what it prints."""
        result = subprocess.run(
            words,
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        assert result.returncode == 0, result.stdout
        return result.stdout

    @contextmanager
    def terminal(self, words: Sequence[str]) -> Iterator[Terminal]:
        """A program that draws on a whole terminal; killed at the end."""
        pid, descriptor = pty.fork()
        if pid == 0:
            termios.tcsetwinsize(1, (40, 110))
            os.chdir(self.project)
            os.execvpe(words[0], [*words], {**self.env, "TERM": "xterm-256color"})
        try:
            yield Terminal(descriptor)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)
            os.close(descriptor)
            os.waitpid(pid, 0)

    def settings(self) -> dict[str, bytes]:
        """The programs in the directories of settings, by their path."""
        roots = [self.home / ".config", self.home / ".emacs.d"]
        files = [
            path for root in roots for path in root.rglob("*") if path.suffix in {".lua", ".el"}
        ]
        return {str(path.relative_to(self.home)): path.read_bytes() for path in files}


@attrs.define
class Terminal:
    descriptor: int
    screen: pyte.Screen = attrs.field(factory=lambda: pyte.Screen(110, 40), init=False)

    def wait_for(self, text: str) -> None:
        """Read until the screen shows this text."""
        stream = pyte.ByteStream(self.screen)
        deadline = time.monotonic() + PATIENCE
        while text not in (shown := "\n".join(self.screen.display)):
            left = max(0, deadline - time.monotonic())
            assert select.select([self.descriptor], [], [], left)[0], shown
            stream.feed(os.read(self.descriptor, 4096))

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    desk = Desk(tmp_path, {**env, "HOME": str(tmp_path)}, Path(env.get("EDITOR_PLUGINS", "")))
    desk.project.mkdir()
    desk.write("project/review.yaml", CHAIN)
    desk.write("project/mark.py", MARK)
    return desk


@pytest.fixture
def needs(desk: Desk) -> Callable[..., None]:
    """Skip the test unless this program and these checkouts are there."""

    def needs(program: str, *plugins: str) -> None:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, which is not on PATH")
        if plugins and not desk.env.get("EDITOR_PLUGINS"):
            pytest.skip(f"EDITOR_PLUGINS names no directory with {', '.join(plugins)}")
        for plugin in plugins:
            if not (desk.plugins / plugin).is_dir():
                pytest.skip(f"EDITOR_PLUGINS has no {plugin}")

    return needs
