"""The client of the benchmarks: starts a subject, talks to it, and reads its clocks.

Reading and writing block, because that costs the client least and every measure is written so that
nothing deadlocks; an alarm ends hangs. Responses are kept and checked after the clock has stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

__all__ = ["Client", "Failed", "Usage", "alarm"]

BLOCK = 65536
PATIENCE = 120.0


class Failed(Exception):
    """The subject failed the measure."""


class Client:
    """A running subject, its streams, and its unread output."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.spawned = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if "BENCHMARK_STDERR" in os.environ else subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._rest = b""
        self.last_id = 0

    # -- what a client does --------------------------------------------------------------------

    def initialize(self) -> float:
        """Returns the seconds since the process was started."""
        self.ask("initialize", protocolVersion=1, clientCapabilities={})
        return time.perf_counter() - self.spawned

    def open(self) -> str:
        session: str = self.ask("session/new", cwd="/", mcpServers=[])["sessionId"]
        return session

    def ask(self, method: str, **params: Any) -> Any:
        """A request and its result, one at a time."""
        self.write(self.request(method, params))
        (line,) = self.lines(1)
        message = json.loads(line)
        if message.get("id") != self.last_id or "result" not in message:
            raise Failed(f"{method} was answered with {line[:300]!r}")
        return message["result"]

    def prompt(self, session: str, text: str) -> bytes:
        """The line of a prompt, to be written."""
        prompt = [{"type": "text", "text": text}]
        return self.request("session/prompt", {"sessionId": session, "prompt": prompt})

    def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    # -- bytes ---------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        written = os.write(self._in, data)
        while written < len(data):
            written += os.write(self._in, memoryview(data)[written:])

    def read(self) -> bytes:
        chunk = os.read(self._out, BLOCK)
        if not chunk:
            raise Failed("the subject closed its output")
        return chunk

    def chunks(self, lines: int) -> Iterator[bytes]:
        """Read until this many lines are there; there must not be more of them."""
        while lines > 0:
            chunk = self.read()
            lines -= chunk.count(b"\n")
            yield chunk
        if lines or not chunk.endswith(b"\n"):
            raise Failed("more came back than was asked for")

    def lines(self, count: int) -> list[bytes]:
        return b"".join(self.chunks(count)).splitlines()

    # -- the end -------------------------------------------------------------------------------

    def stop(self) -> float:
        """Close its input; returns the seconds until it had ended."""
        assert self._process.stdin is not None
        begin = time.perf_counter()
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        spent = time.perf_counter() - begin
        assert self._process.stdout is not None
        self._process.stdout.close()
        return spent

    def kill(self) -> None:
        below = _below(self.pid)
        for pid in (self.pid, *below):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is not None:
            self.kill()
        self.stop()


class Usage:
    """The clocks of a subject from here to `end`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._below = _below(pid)
        self._begin = time.perf_counter()
        self._cpu, self._others = cpu_ns(pid), self._cpu_of_others()

    def end(self, messages: int) -> dict[str, float]:
        """CPU of the subject per message, messages per second, and how much of the time the
        processes of the run had a CPU: where that is far below one, others had it."""
        wall = time.perf_counter() - self._begin
        cpu = (cpu_ns(self._pid) - self._cpu) / 1e9
        others = (self._cpu_of_others() - self._others) / 1e9
        return {
            "messages": messages,
            "cpu": cpu / messages * 1e6,
            "rate": messages / wall,
            "ran": (cpu + others) / wall,
        }

    def _cpu_of_others(self) -> int:
        return time.process_time_ns() + sum(map(cpu_ns, self._below))


def cpu_ns(pid: int) -> int:
    """The CPU time that a process has had, with all its threads, in nanoseconds."""
    if sys.platform == "linux":
        with suppress(OSError):
            return time.clock_gettime_ns((~pid) << 3 | 2)  # clock_getcpuclockid(3)
        return 0
    times = psutil.Process(pid).cpu_times()
    return int((times.user + times.system) * 1e9)


def memory(pid: int) -> dict[str, float]:
    """What a process has in memory, and the most that it ever had, in MB."""
    if sys.platform != "linux":
        now = psutil.Process(pid).memory_info().rss / 1e6
        return {"now": now, "peak": now}
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    now, peak = (int(status[key].split()[0]) * 1024 / 1e6 for key in ("VmRSS", "VmHWM"))
    return {"now": now, "peak": peak}


def _below(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def alarm(seconds: float = PATIENCE) -> Iterator[None]:
    """End what takes longer."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Failed(f"nothing happened for {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
