"""Check plugins in a separate process: for `check`, and for `serve` before it listens.

To check options, a plugin's module is imported and an instance created. Both run arbitrary code,
which may exit, hang, print or start programs. A checker process therefore handles one plugin after
the other, each within its `start_timeout`. A plugin that ends the process or takes too long is
reported with its location; the next one gets a new checker process. At the end the checker
processes and all their descendants are killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.errors import StartError, describe
from conductor.plugins.contained import with_contained
from conductor.plugins.isolation import Role, bootstrap_line, parse_bootstrap_line
from conductor.plugins.loading import InvalidOptions, instantiate, load_class_for_role
from conductor.transport.child_process import describe_status
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = ["check_plugins"]

_TIMED_OUT = "import and construction took longer than {:g} s (start_timeout)"


def check_plugins(chains: Iterable[ChainFile]) -> list[Diagnostic]:
    """Errors and warnings of all plugins that chain files name with `use:`.

    Blocks; Ctrl-C raises `KeyboardInterrupt`. Call it before any other process is started: all
    descendants of this process are killed at the end.
    """
    diagnostics: list[Diagnostic] = []
    become_subreaper()
    checker: _CheckerProcess | None = None
    try:
        for spec, role in (plugin for chain in chains for plugin in _plugins(chain)):
            checker = checker or _CheckerProcess()
            diagnostics += checker.check(spec, role)
            if checker.process.poll() is not None:
                checker = None
    finally:
        if checker is not None:
            checker.kill()
        kill_descendants()
    return diagnostics


def _plugins(chain: ChainFile) -> Iterator[tuple[ComponentSpec, Role]]:
    """The components with `use:`, nested chains included, with their role."""
    agent = chain.agent
    while agent is not None and agent.chain is not None:
        agent = agent.chain.agent
    components = chain.flat()
    count = len(components) - (agent is not None)
    for index, spec in enumerate(components):
        if spec.use is not None:
            yield spec, "agent" if index == count else "proxy"


class _CheckerProcess:
    """The process that imports plugins: one line of stdin per plugin, one line of stdout each."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "conductor.cli.check_plugins"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )

    def check(self, spec: ComponentSpec, role: Role) -> list[Diagnostic]:
        """Check one plugin. Afterwards the process may have ended (`process.poll()`)."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(bootstrap_line(spec, role))
        answer = self._answer(time.monotonic() + spec.start_timeout)
        if answer is not None and answer.endswith(b"\n"):
            try:
                return msgspec.json.decode(answer, type=list[Diagnostic])
            except msgspec.MsgspecError:  # a module found the descriptor
                return [_problem(spec, "it wrote to a file descriptor that is not its own")]
        self.kill()
        if answer is None:
            return [_problem(spec, _TIMED_OUT.format(spec.start_timeout))]
        status = describe_status(self.process.returncode)
        return [_problem(spec, f"it ended the process that imports it, which {status}")]

    def kill(self) -> None:
        """Kill the process and its process group, and wait for it."""
        with suppress(subprocess.TimeoutExpired):
            # Its stdout may be at EOF a moment before it exits.
            self.process.wait(0.2)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _answer(self, deadline: float) -> bytes | None:
        """One line, or less at EOF; None after the deadline."""
        assert self.process.stdout is not None
        answer = b""
        while not answer.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                return answer
            answer += chunk
        return answer


def _problem(spec: ComponentSpec, message: str) -> Diagnostic:
    location = spec.locations.get(("use",)) or spec.location or SourceLocation.whole(spec.name)
    return Diagnostic(location, message)


def _diagnose(spec: ComponentSpec, role: Role) -> list[Diagnostic]:
    try:
        plugin = instantiate(spec, load_class_for_role(spec, role))
        contained = with_contained(spec.name, plugin)[1:]
    except InvalidOptions as exc:
        return list(exc.diagnostics)
    except StartError as exc:
        return [_problem(spec, exc.reason)]
    warnings = []
    try:
        for option, text in plugin.option_warnings():
            location = (
                spec.locations.get(("with", option))
                or spec.location
                or SourceLocation.whole(spec.name)
            )
            warnings.append(Diagnostic(location, f"{spec.name}: {text}", severity="warning"))
        for name, proxy in contained:
            for option, text in proxy.option_warnings():
                warning = f"{name}: {option}: {text}"
                warnings.append(
                    msgspec.structs.replace(_problem(spec, warning), severity="warning")
                )
    except BaseException as exc:
        return [_problem(spec, f"option_warnings() failed: {describe(exc)}")]
    return warnings


def _main() -> None:
    """Checker process: for each plugin on stdin, write its diagnostics as a line to stdout."""
    answers = os.dup(1)
    os.dup2(2, 1)  # output of modules goes to stderr
    lines = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for line in lines:
        spec, role, _ = parse_bootstrap_line(line)
        found = msgspec.json.encode(_diagnose(spec, role)) + b"\n"
        sys.stdout.flush()
        while found:
            found = found[os.write(answers, found) :]
    os._exit(0)


if __name__ == "__main__":
    _main()
