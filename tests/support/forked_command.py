"""`acp-conductor` in processes that are forked from one which has imported its modules.

A command takes 0.15 to 0.3 s of CPU to start, most of it for imports. Each of these processes has
its own arguments, directory, environment, stdin, stdout and stderr, and the server never runs a
command itself: what a command imports, changes or leaves behind is its own.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MODULES = (
    *("bridges.bridge", "conductor.chain.launchers", "conductor.chain.stdio_server"),
    *("conductor.chainfile.options", "conductor.cli.trial", "conductor.cli.command_group"),
    *("conductor.cli.load", "conductor.client.embedding", "conductor.plugins.plugin_component"),
    *("conductor.testing.agent", "platformdirs", "rich.console", "structlog", "yaml"),
)
_MAX_REQUEST = 1 << 17
_PIPE = 1 << 16


SERVERS: set[int] = set()
"""Process ids, for tests that expect no other process."""


class ForkedCommand:
    """A running command, a child of this process, with the interface of an unbuffered `Popen`."""

    def __init__(self, pid: int, arguments: Sequence[str], pipes: Sequence[int]) -> None:
        self.pid = pid
        self.args = list(arguments)
        self.stdin: io.FileIO = io.FileIO(pipes[0], "w")
        self.stdout: io.FileIO = io.FileIO(pipes[1])
        self.stderr: io.FileIO = io.FileIO(pipes[2])
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # reaped elsewhere, as by `psutil.wait_procs`
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            running = os.pidfd_open(self.pid)
            try:
                select.select([running], [], [], timeout)
            finally:
                os.close(running)
        status = self.poll()
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class CommandServer:
    """The process with the modules, started for the first command, or by `start`. `run` runs one
    command at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environ = dict(os.environ)  # without the changes of a test

    def start(self) -> None:
        """Start the process, unless it runs: a command in the tests' process kills its children."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.close()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=self._environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        SERVERS.add(self._process.pid)

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
            SERVERS.discard(self._process.pid)

    def run(
        self,
        arguments: Sequence[str],
        *,
        input: str,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of `python -m conductor`, with text and captured output."""
        data = input.encode()
        assert len(data) <= _PIPE, "the command may not read all of it"
        pid, (stdin, *outputs) = self._request("run", arguments, cwd, env)
        with suppress(BrokenPipeError):
            os.write(stdin, data)
        os.close(stdin)
        try:
            output = _read(outputs, time.monotonic() + timeout)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        finally:
            status = self._receive()
        texts = (each.decode().replace("\r\n", "\n") for each in output)
        return subprocess.CompletedProcess(list(arguments), status, *texts)

    def popen(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> ForkedCommand:
        """As `subprocess.Popen` of `python -m conductor`, with pipes. This process has to adopt
        orphans (`leftovers.adopt_orphans`): the command becomes its child."""
        pid, pipes = self._request("leave", arguments, cwd, env)
        assert self._receive() == 0
        return ForkedCommand(pid, arguments, pipes)

    def _request(
        self, what: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> tuple[int, list[int]]:
        """The command's process, and our ends of its stdin, stdout and stderr."""
        self.start()
        assert self._socket is not None
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        theirs = [stdin[0], stdout[1], stderr[1]]
        request = json.dumps([what, list(arguments), str(cwd), dict(env)]).encode()
        socket.send_fds(self._socket, [request], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        return self._receive(), [stdin[1], stdout[0], stderr[0]]

    def _receive(self) -> int:
        assert self._socket is not None
        return int(self._socket.recv(16))


def _read(descriptors: list[int], deadline: float) -> list[bytes]:
    """All that is written, and close the descriptors."""
    read = dict.fromkeys(descriptors, b"")
    unfinished = list(descriptors)
    try:
        while unfinished:
            ready = select.select(unfinished, [], [], max(0, deadline - time.monotonic()))[0]
            if not ready:
                raise TimeoutError
            for descriptor in ready:
                chunk = os.read(descriptor, _PIPE)
                read[descriptor] += chunk
                if not chunk:
                    unfinished.remove(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return list(read.values())


def _serve(connection: socket.socket) -> None:
    """Answer each request with the command's process id, then with a status: that of the command,
    or of the process that has started it and left it to the subreaper above us."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
        if not request:
            return
        what, *command = json.loads(request)
        pid = os.fork()
        if pid == 0:
            if what == "leave" and (orphan := os.fork()):
                connection.send(str(orphan).encode())
                os._exit(0)
            connection.close()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
                os.close(descriptor)
            _run_command(*command)
        for descriptor in descriptors:
            os.close(descriptor)
        if what == "run":
            connection.send(str(pid).encode())
        status = os.waitpid(pid, 0)[1]
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run_command(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """As `python -m conductor`; without taking the modules down, which touches all memory."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = cwd
    sys.argv = ["conductor", *arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    code: object = 0
    try:
        runpy.run_module("conductor", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        code = exit.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
