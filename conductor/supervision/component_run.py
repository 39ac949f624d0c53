"""One run of a component: serves its process, or connection, from start to end.

The supervisor starts, restarts and stops processes, connections to other machines, and plugins that
restart in this process, through `Endpoint`; `chain/build.py` chooses the `Launcher` that opens one.

Routes its output, writes its input, drains its stderr and waits for its exit. The run is over when
the process has exited and its pipes are at EOF; descendants that keep a pipe open delay the end by
one second at most. A process that closes stdin or stdout without exiting has failed and is killed.
Of stderr, the tail is kept for error messages, and the lines are logged, limited in bytes per
second; the excess is counted, not kept. All of it goes to the file of `stderr:`, if there is one.

The errors of a component that did not start, or ended, have its command, place, status and stderr.
Secrets are masked: the command is shown as the chain file has it.
"""

from __future__ import annotations

import os
import re
import signal
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
import trio

from conductor.chainfile.model import ComponentSpec, ValuePath
from conductor.errors import ComponentExited, StartError
from conductor.files import open_output
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.messages import truncate
from conductor.log import Logger
from conductor.secrets.masking import redact
from conductor.token_bucket import TokenBucket
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher, ReadGate, read_loop, write_loop

__all__ = [
    "ComponentRun",
    "Endpoint",
    "Launcher",
    "StderrFile",
    "StderrTail",
    "exit_error",
    "handshake_error",
    "is_remote",
    "start_error",
]

_EXIT_GRACE: Final = 1.0
"""Seconds from EOF of stdout to the exit, and from the exit to EOF of the pipes."""
_TAIL_BYTES: Final = 64 * 1024
_FILE_BYTES: Final = 1024 * 1024
_ERROR_LINES: Final = 20
_LINE_LIMIT: Final = 4096
_LOG_RATE: Final = 64 * 1024
_MAX_LINES_PER_CHUNK: Final = 500
"""Maximum number of lines of one chunk that are logged."""
_LINE_COST: Final = 128
"""Bytes of the log for each line, besides its own."""
_ANSI: Final = rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r"
_MAX_REASON: Final = 200
"""Characters of the line of stderr in an error message."""
_NO_REASON: Final = re.compile(r"\s|Node\.js v|note: |\W*$")
"""Lines that follow the message of an uncaught exception or a panic."""


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


class StderrTail(msgspec.Struct, eq=False):
    """The last 64 KiB of stderr since the component last answered with a result."""

    _chunks: deque[bytes] = msgspec.field(default_factory=deque)
    _size: int = 0
    _partial: bytes = b""
    _log_rate: TokenBucket = msgspec.field(default_factory=lambda: TokenBucket(_LOG_RATE))

    def feed(self, chunk: bytes, now: float) -> list[str]:
        """Add a chunk; returns the lines to log as the rate allows. `now` is in seconds."""
        self._keep(chunk)
        if not self._log_rate.take(now, len(chunk)):
            self._partial = b""
            return []
        *lines, rest = (self._partial + chunk).split(b"\n")
        if len(rest) > _LINE_LIMIT:
            lines.append(rest)
            rest = b""
        self._partial = rest
        if len(lines) > _MAX_LINES_PER_CHUNK:
            lines = [line for line in lines if not line.isspace()]
            self._log_rate.skipped += sum(map(len, lines[_MAX_LINES_PER_CHUNK:]))
            del lines[_MAX_LINES_PER_CHUNK:]
        self._log_rate.spend(_LINE_COST * len(lines))
        return [text for line in lines if (text := _readable(line))]

    def forget(self) -> None:
        """Drop the tail, which does not explain a later failure."""
        self._chunks.clear()
        self._size = 0

    def end(self) -> list[str]:
        """The last line at EOF, if it has no newline."""
        text = _readable(self._partial)
        self._partial = b""
        return [text] if text else []

    def take_skipped(self) -> int:
        """Bytes not logged since the last call."""
        return self._log_rate.take_skipped()

    def last_lines(self) -> tuple[str, ...]:
        """The last 20 lines for error messages, without terminal escapes."""
        lines = [_readable(line) for line in b"".join(self._chunks).split(b"\n")]
        return tuple(line for line in lines if line)[-_ERROR_LINES:]

    def _keep(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= _TAIL_BYTES:
            self._size -= len(self._chunks.popleft())


def _readable(line: bytes) -> str:
    text = re.sub(_ANSI, b"", line).decode(errors="backslashreplace").expandtabs(4)
    if not text.isprintable():  # what is left of nested or unknown escapes
        text = "".join(char if char.isprintable() else " " for char in text)
    text = text.rstrip()
    return text if len(text) <= _LINE_LIMIT else text[:_LINE_LIMIT] + "… [cut]"


class StderrFile(msgspec.Struct, eq=False):
    """The file of `stderr:`: gets the bytes as they are, secrets included, so only this user can
    read it. At 1 MiB it is renamed to `FILE.1`, in place of the older one; further processes of the
    component write to the same file. After a failure, which is logged, nothing more is written."""

    path: str | None
    log: Logger
    _descriptor: int = -1

    def write(self, chunk: bytes) -> None:
        if self.path is None:
            return
        try:
            if self._descriptor < 0:
                self._descriptor = open_output(self.path)
            os.write(self._descriptor, chunk)
            opened = os.fstat(self._descriptor)
            if stat.S_ISREG(opened.st_mode) and opened.st_size >= _FILE_BYTES:
                if os.path.samestat(opened, os.lstat(self.path)):  # else another has renamed it
                    os.replace(self.path, f"{self.path}.1")
                self.close()
        except OSError as exc:
            self.log.warning("stderr file not written", path=self.path, error=exc.strerror)
            self.path = None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class ComponentRun(msgspec.Struct, eq=False):
    """`stop` is set when the component is stopped; `drained` is set here at EOF of its output."""

    endpoint: Endpoint
    connection: Connection
    flusher: Flusher
    stop: trio.Event
    drained: trio.Event
    log: Logger
    stderr_file: StderrFile
    stderr: StderrTail = msgspec.field(default_factory=StderrTail)
    end_cause: str | None = None
    """Why the conductor killed it, as a predicate; None if it was not killed."""
    _exited: trio.Event = msgspec.field(default_factory=trio.Event)
    _stderr_read: trio.Event = msgspec.field(default_factory=trio.Event)

    @property
    def end_reason(self) -> str:
        """Predicate for error messages, such as "exited with status 1"."""
        return self.end_cause or self.endpoint.status or "ended"

    def end(self, end_cause: str) -> None:
        """Kill a component that has failed. Of several causes, the first is reported."""
        self.end_cause = self.end_cause or end_cause
        self.endpoint.signal(signal.SIGKILL)

    async def run(
        self, read_gate: ReadGate | None, background: Iterable[Callable[[], Awaitable[Any]]]
    ) -> None:
        """Serve until the end; the `background` functions run meanwhile and are cancelled then."""
        endpoint = self.endpoint
        try:
            async with trio.open_nursery() as nursery:
                for function in background:
                    nursery.start_soon(function)
                nursery.start_soon(self._drain_stderr)
                nursery.start_soon(self._watch_exit)
                nursery.start_soon(self._write)
                await self._pump(read_gate)
                await self._wait_exit()
                with trio.move_on_after(_EXIT_GRACE):
                    await self._stderr_read.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if endpoint.status is None:
                    endpoint.signal(signal.SIGKILL)
                    await endpoint.wait()
            endpoint.close()
            self.stderr_file.close()

    async def _pump(self, read_gate: ReadGate | None) -> None:
        """Route the output until EOF.

        EOF comes when every holder of stdout has closed it. Descendants that left the process group
        may keep it open: one second after the exit, reading stops.
        """
        async with trio.open_nursery() as nursery:

            async def until_exit() -> None:
                await self._exited.wait()
                await trio.sleep(_EXIT_GRACE)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_exit)
            await read_loop(self.connection, self.flusher, read_gate)
            nursery.cancel_scope.cancel()

    async def _write(self) -> None:
        """Write the input. A component that closes its stdin without exiting has failed."""
        await write_loop(self.connection, self.flusher)
        if self.stop.is_set():
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set() and not self.stop.is_set():
            self.end("closed its stdin")

    async def _wait_exit(self) -> None:
        """Wait for the exit after EOF of stdout: one second, without limit while stopping."""
        if self.stop.is_set():
            self.drained.set()
            await self._exited.wait()
            return
        with trio.move_on_after(_EXIT_GRACE):
            await self._exited.wait()
        if not self._exited.is_set():
            self.end("closed its stdout")
            await self._exited.wait()

    async def _watch_exit(self) -> None:
        status = await self.endpoint.wait()
        self.log.lifecycle("component ended", status=status)
        self._exited.set()

    async def _drain_stderr(self) -> None:
        while chunk := await self.endpoint.read_stderr():
            self.stderr_file.write(chunk)
            for line in self.stderr.feed(chunk, trio.current_time()):
                self._log_stderr(line)
        for line in self.stderr.end():
            self._log_stderr(line)
        if skipped := self.stderr.take_skipped():
            self.log.component_stderr("stderr rate limit exceeded", bytes=skipped)
        self._stderr_read.set()

    def last_stderr(self) -> tuple[str, ...]:
        """The last lines for error messages, secrets masked."""
        return tuple(map(redact, self.stderr.last_lines()))

    def _log_stderr(self, line: str) -> None:
        self.log.component_stderr("stderr", line=redact(line))


def start_error(spec: ComponentSpec, run: ComponentRun | None, reason: str) -> StartError:
    """The start failed for `reason`, a clause."""
    status: str | None = None
    stderr_tail: tuple[str, ...] = ()
    if run is not None:
        stderr_tail = run.last_stderr()
        if run.end_cause is None and run.endpoint.reached:
            status = run.endpoint.status
    return StartError(
        spec.name,
        reason,
        command=_shown_command(spec),
        status=status,
        stderr_tail=stderr_tail,
        location=_location(spec),
    )


def handshake_error(spec: ComponentSpec, run: ComponentRun | None, reason: str) -> StartError:
    """The handshake failed: because the process ended, it could not be reached, or for `reason`."""
    problem = None if run is None else run.end_cause or run.endpoint.status
    if problem is None and run is not None and not run.endpoint.reached:
        seconds = f"{spec.start_timeout:g} s (start_timeout)"
        problem = f"could not be reached at {run.endpoint.location} within {seconds}"
    return start_error(spec, run, f"it {problem}" if problem else reason)


def exit_error(spec: ComponentSpec, run: ComponentRun) -> ComponentExited:
    """The component ended after it was initialized."""
    stderr_tail = run.last_stderr()
    return ComponentExited(
        spec.name,
        run.end_reason,
        stderr_tail=stderr_tail,
        last_line=_reason_in(stderr_tail) if run.end_cause is None else "",
        location=_location(spec),
    )


def _reason_in(stderr_tail: Sequence[str]) -> str:
    """The line that most likely says why a process has ended, cut; empty if there is none."""
    found = (line for line in reversed(stderr_tail) if not _NO_REASON.match(line))
    return truncate(next(found, ""), _MAX_REASON)


def _shown_command(spec: ComponentSpec) -> list[str]:
    """The command as the chain file has it, with `${VAR}` unexpanded: values may be secret."""
    return [
        spec.written[path].text if (path := ("run", index)) in spec.written else word
        for index, word in enumerate(spec.run or ())
    ]


def _location(spec: ComponentSpec) -> str | None:
    paths: list[ValuePath] = [("run", 0), ("use",), ("registry",), ("connect",), ("unix",)]
    locations = (spec.locations.get(path) for path in paths)
    location = next(filter(None, locations), spec.location)
    return None if location is None else str(location)
