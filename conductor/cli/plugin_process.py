"""A process that imports plugins for a command, and answers questions about them.

Importing a plugin's module and making an instance run arbitrary code, which may exit, hang, print
or start programs. So both run in a process of their own, which is asked with one line on stdin per
plugin, and answers with one line on stdout each. A plugin that ends the process or takes too long
is reported; the next one gets a new process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from conductor.json_values import decode_value
from conductor.transport.child_process import describe_status
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = ["PluginProcess", "PluginProcessError", "answer_questions", "ask_each", "plugin_process"]


class PluginProcessError(Exception):
    """The process ended or did not respond in time; the text is the reason."""


class PluginProcess:
    """The process; a new one is started after a failure. It runs `module` (`python -m`)."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes, seconds: float) -> bytes:
        """The answer to a question, both one line with its line break.

        Raises `PluginProcessError`, also if there is no answer within `seconds`.
        """
        if self._process is not None and self._process.poll() is not None:
            self.kill()  # a thread of the last plugin has ended it
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(question)
        answer = _read_line(process, time.monotonic() + seconds)
        if answer is not None and answer.endswith(b"\n"):
            return answer
        self.kill()
        if answer is None:
            text = f"import and construction took longer than {seconds:g} s (start_timeout)"
            raise PluginProcessError(text)
        status = describe_status(process.returncode)
        raise PluginProcessError(f"importing it ended the process, which {status}")

    def kill(self) -> None:
        """Kill the process and its process group, and wait for it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()  # ends it, unless a plugin keeps it
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


@contextmanager
def plugin_process(module: str) -> Iterator[PluginProcess]:
    """Use a `PluginProcess`; at the end it and all descendants of this process are killed.

    So nothing else may have been started before.
    """
    become_subreaper()
    process = PluginProcess(module)
    try:
        yield process
    finally:
        process.kill()
        kill_descendants()


def ask_each(
    module: str, questions: Mapping[str, object], kind: Any, seconds: float
) -> Iterator[tuple[str, Any, str]]:
    """Ask about each component, by its name; all in order.

    Questions are encoded as JSON. An answer is a pair of JSON: a value of the type `kind`, and an
    error, or "". Yields the name, the value (None where the process did not answer) and the error.
    """
    import msgspec

    with plugin_process(module) as process:
        for name, question in questions.items():
            try:
                line = process.ask(msgspec.json.encode(question) + b"\n", seconds)
                value, error = decode_value(line, type=tuple[kind, str])
            except PluginProcessError as exc:
                value, error = None, f"{name}: {exc}"
            yield name, value, error


def answer_questions(answer: Callable[[bytes], bytes]) -> None:
    """In the process: answer each line of stdin; `answer` returns it without line break."""
    answers = os.dup(1)
    os.dup2(2, 1)  # output of modules goes to stderr
    questions = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for question in questions:
        line = answer(question) + b"\n"
        sys.stdout.flush()
        while line:
            line = line[os.write(answers, line) :]
    os._exit(0)


def _read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """One line, or less at EOF; None after the deadline."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        left = max(0.0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], left)[0]:
            return None
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            return line
        line += chunk
    return line
