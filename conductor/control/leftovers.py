"""Orphaned processes of killed conductors: found through /proc, ended by `pidfd` (Linux).

The mark in the environment of each component (`process_tree.MARK`) names its conductors, the
outermost first. A process is a leftover if all of them have ended, and so are its descendants and
the members of a process group that it leads. Processes of other users, of another PID namespace
(but for descendants), those of a conductor that lives, and this process with its ancestors are
never signalled.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Final

import attrs

from conductor.transport.process_tree import MARK, conductors_of_mark

__all__ = ["Leftover", "end_leftovers", "find_leftovers", "leftovers_of"]

_TERM_TIMEOUT: Final = 3.0
_KILL_TIMEOUT: Final = 5.0
_ROUNDS: Final = 5
"""Maximum number of searches: a process may have started another before it ended."""
_NAME: Final = f"{MARK}=".encode()


@attrs.frozen
class Leftover:
    """A process. `started` is in clock ticks since the boot: with `pid`, its identity."""

    pid: int
    parent: int
    group: int
    started: int
    has_ended: bool
    """A zombie."""
    is_own: bool
    """It belongs to this user, and to this PID namespace."""
    mark: str
    """Empty if its environment has none or cannot be read."""
    command: str


def find_leftovers() -> list[Leftover]:
    """The leftovers, by process group."""
    return leftovers_of(_processes(), os.getpid())


def leftovers_of(processes: Iterable[Leftover], own: int) -> list[Leftover]:
    """The leftovers among all processes; `own` is the process id of this one."""
    table = {each.pid: each for each in processes}
    spared = set(_ancestors(own, table))
    roots = [each for each in table.values() if each.is_own and _is_left(each, table)]
    found = {each.pid: each for each in (*roots, *_led_by(roots, table))}
    waiting = list(found)
    while waiting:
        parent = waiting.pop()
        for each in table.values():
            if each.parent == parent and each.pid not in found and not _has_living(each, table):
                found[each.pid] = each
                waiting.append(each.pid)
    left = [each for each in found.values() if each.pid not in spared and not each.has_ended]
    return sorted(left, key=lambda each: (each.group, each.pid))


def end_leftovers(found: Sequence[Leftover]) -> list[Leftover]:
    """End these processes, and those that they start meanwhile: SIGTERM, then SIGKILL.

    Returns the processes that did not end.
    """
    for _ in range(_ROUNDS):
        if not found:
            break
        _end(found)
        found = find_leftovers()
    return list(found)


def _end(found: Iterable[Leftover]) -> None:
    with ExitStack() as stack:
        running: dict[int, Leftover] = {}
        for each in found:
            with suppress(OSError):
                fd = os.pidfd_open(each.pid)
                stack.callback(os.close, fd)
                if _same(each):  # not another process with its number
                    running[fd] = each
        for number, timeout in ((signal.SIGTERM, _TERM_TIMEOUT), (signal.SIGKILL, _KILL_TIMEOUT)):
            for fd in running:
                with suppress(OSError):
                    signal.pidfd_send_signal(fd, number)
                    signal.pidfd_send_signal(fd, signal.SIGCONT)
            _wait_ended(running, timeout)


def _wait_ended(running: dict[int, Leftover], timeout: float) -> None:
    """Wait until these processes have ended, and remove those that have."""
    poller = select.poll()
    for fd in running:
        poller.register(fd, select.POLLIN)
    end = time.monotonic() + timeout
    while running and (rest := end - time.monotonic()) > 0:
        for fd, _ in poller.poll(rest * 1000):
            poller.unregister(fd)
            del running[fd]


def _is_left(process: Leftover, table: dict[int, Leftover]) -> bool:
    conductors = conductors_of_mark(process.mark)
    return bool(conductors) and not _has_living(process, table)


def _has_living(process: Leftover, table: dict[int, Leftover]) -> bool:
    """Whether a conductor in the mark is alive. A process that started after the marked one only
    reuses the process id of a conductor that has ended."""
    return any(
        (conductor := table.get(pid)) is not None
        and not conductor.has_ended
        and conductor.started <= process.started
        for pid in conductors_of_mark(process.mark)
    )


def _led_by(roots: Iterable[Leftover], table: dict[int, Leftover]) -> Iterator[Leftover]:
    """The other members of the process groups that these processes lead."""
    groups = {each.pid for each in roots if each.pid == each.group}
    for each in table.values():
        if each.group in groups and each.is_own and not _has_living(each, table):
            yield each


def _ancestors(pid: int, table: dict[int, Leftover]) -> Iterator[int]:
    """A process and its ancestors."""
    while pid in table:
        yield pid
        pid = table[pid].parent


def _processes() -> Iterator[Leftover]:
    try:
        names = os.listdir("/proc")
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux
        return
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                yield _process(int(name), namespace)


def _process(pid: int, namespace: str) -> Leftover:
    """Raises `OSError` if it has ended."""
    state, parent, group, started = _stat(pid)
    is_own, mark = _user(pid) == os.geteuid(), ""
    if is_own:
        with suppress(OSError):
            is_own = os.readlink(f"/proc/{pid}/ns/pid") == namespace
            mark = _mark(pid)
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return Leftover(pid, parent, group, started, state in "ZX", is_own, mark, command)


def _stat(pid: int) -> tuple[str, int, int, int]:
    """State, parent, process group, and time of start."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


def _user(pid: int) -> int | None:
    """The real user id, if the effective one is the same."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            real, effective = map(int, line.split()[1:3])
            return real if real == effective else None
    return None


def _mark(pid: int) -> str:
    for variable in _read(pid, "environ").split(b"\0"):
        if variable.startswith(_NAME):
            return variable[len(_NAME) :].decode(errors="replace")
    return ""


def _same(process: Leftover) -> bool:
    """Whether this is still the process that was found."""
    return _stat(process.pid)[3] == process.started and _mark(process.pid) == process.mark


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
