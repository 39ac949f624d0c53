"""Descendant processes: find, identify, end and reap them.

Three mechanisms: Linux reparents orphaned descendants to a subreaper (`become_subreaper`). A
process group contains a component and its descendants, except those that left it. The environment
of each component has a unique mark (`MARK`), which its descendants inherit; after the component has
exited, those that left the group are found by it. The mark of a component is a prefix of the marks
of all components of a conductor inside it, which are found with it.

Elsewhere (macOS) nothing is adopted, and psutil finds what has a mark among all processes. On Linux
/proc is read: psutil looks at all processes for the children of one, 10 ms each time.

No function recurses: components decide the depth of a process tree.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import count

__all__ = [
    "MARK",
    "become_subreaper",
    "child_reaped",
    "child_started",
    "descendants",
    "forget_readers",
    "has_reader",
    "kill_descendants",
    "kill_marked",
    "kill_new_descendants",
    "new_mark",
    "own_mark",
    "reap_adopted",
    "report_to",
    "sandboxed_group",
    "stopped_process",
]

MARK = "ACP_CONDUCTOR_TREE"
"""Environment variable with the mark: a token for this run, and `/n/` for each component. The token
begins with the conductor's process id."""

_HAS_PROC = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUNDS = 20
_END_TIMEOUT = 5.0
"""Seconds for all processes together to end after SIGKILL."""
_DECIDE_AFTER = 10.0
"""Minimum seconds before a zombie that a plugin may have started, and that no `Popen` waits for,
counts as adopted."""

_started: set[int] = set()
"""Unreaped children of the conductor: it reads their exit status itself."""
_reports: dict[int, Callable[[bytes], bool]] = {}
"""Report callbacks by the process id of the child that reads the reports; it is killed last."""
_adopted: set[int] = set()
"""Process ids that are adopted, or will be when their parents end."""
_undecided: dict[int, float] = {}
"""Zombies that other code may wait for, and the time to decide, in seconds."""
_numbers = count(1)
_own_marks: dict[int, str] = {}
"""By process id: a forked process is a conductor of its own."""


def become_subreaper() -> None:
    """Become the parent of orphaned descendants (Linux); mark all processes started from now on."""
    os.environ[MARK] = own_mark()
    if _HAS_PROC:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_mark() -> str:
    """The mark of this run, prefixed by that of an outer conductor, if there is one."""
    pid = os.getpid()
    if pid not in _own_marks:
        outer = os.environ.get(MARK)
        token = f"{pid}-{os.urandom(8).hex()}"
        _own_marks[pid] = f"{outer}/{token}" if outer else token
    return _own_marks[pid]


def new_mark() -> str:
    """A mark for one component."""
    return f"{own_mark()}/{next(_numbers)}/"


def child_started(pid: int) -> None:
    """Record a child that leads its own process group and that the conductor reaps."""
    _started.add(pid)
    _report(b"+ %d\n" % pid)


def child_reaped(pid: int) -> None:
    """Record that a child is about to be reaped; its process id can be reused then."""
    if pid in _started:
        _started.discard(pid)
        _report(b"- %d\n" % pid)


def report_to(reader: int, report: Callable[[bytes], bool]) -> None:
    """Report children as lines, `+ PID` and `- PID`, existing ones at once, until `report` returns
    false. `reader` is the process id of the child that reads the lines."""
    if all(report(b"+ %d\n" % pid) for pid in _started):
        _reports[reader] = report


def has_reader() -> bool:
    """Whether a child reads the reports."""
    return bool(_reports)


def forget_readers() -> None:
    """Drop the readers in a forked process: they read the reports of its parent."""
    _reports.clear()


def _report(line: bytes) -> None:
    for reader, report in list(_reports.items()):
        if not report(line):
            del _reports[reader]


def kill_descendants() -> None:
    """Kill all descendants of this process: only at the end of a conductor program.

    The reader of the reports is killed last: it does the rest if the conductor is killed meanwhile.
    """
    end = time.monotonic() + _END_TIMEOUT
    readers = list(_reports)
    for _ in range(_KILL_ROUNDS):  # new processes may appear meanwhile
        pids = [pid for pid in _descendants_of([os.getpid()]) if pid not in _reports]
        if not pids:
            break
        _end(pids, end)
    _reports.clear()
    _end(readers, end)


def kill_new_descendants(known: Collection[int]) -> None:
    """Kill the descendants of this process but for those known, without reaping them."""
    _kill(set(descendants(os.getpid())) - set(known))


def _end(pids: Iterable[int], end: float) -> None:
    """Kill processes and reap those that are children, parents first; wait until `end` at most."""
    for pid in _kill(pids):
        pause = 0.0002
        while _is_running_child(pid) and time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, 0.01)


def _is_running_child(pid: int) -> bool:
    """Whether a child still runs; reaps it if it has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def sandboxed_group(pid: int) -> int | None:
    """The process group of the program that this `bwrap` process has started; `None` if it has not
    started it yet, or has ended.

    Its only child is the first process of the sandbox, and leads the group (`--new-session`).
    """
    for child in _children(pid):
        with suppress(ProcessLookupError):
            if os.getpgid(child) == child:
                return child
    return None


def stopped_process(pid: int) -> tuple[int, int | None] | None:
    """The process id of a child, or of its first descendant, that a signal has stopped (SIGSTOP,
    SIGTTIN), and of the child that signal's number; `None` if all run."""
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):
            status = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                return pid, status.si_status
    import psutil  # 20 ms

    for each in (pid, *descendants(pid)):
        with suppress(psutil.Error):
            if psutil.Process(each).status() == psutil.STATUS_STOPPED:
                return each, None
    return None


def kill_marked(mark: str, *, patient: bool = False) -> bool:
    """Kill the remaining descendants of an ended component: children with its mark that the
    conductor has not started itself, so adopted ones, and their descendants. True if there were
    any: then more may follow, and the caller checks again.

    A process has no readable environment for a moment during `exec`: with `patient`, a child
    without one also counts as a reason to check again.
    """
    if not _HAS_PROC:
        from conductor.transport.orphan_guard_process import kill_with_mark

        return kill_with_mark(mark)
    environments = {
        pid: environ
        for pid in _children(os.getpid())
        if pid not in _started and pid not in _reports and (environ := _environ(pid)) is not None
    }
    variable = f"{MARK}={mark}".encode()
    roots = [pid for pid, environ in environments.items() if variable in environ]
    killed = {*roots, *_descendants_of(roots)}
    _adopted.update(killed)  # at once, or as soon as their parents have ended
    _kill(killed)
    return bool(roots) or (patient and b"" in environments.values())


def reap_adopted(now: float) -> float | None:
    """Reap adopted children that have ended, and no other children. `now` is in seconds.

    Returns the time of the next check for undecided children; `None` if there are none. A child
    that a plugin started cannot be distinguished from an adopted one if it has the conductor's
    process group or its own: it is reaped after `_DECIDE_AFTER`, unless a `Popen` waits for it.
    """
    if not _HAS_PROC:  # then nothing is adopted, either
        return None
    children = set(_children(os.getpid())) - _started - _reports.keys()
    _adopted.intersection_update([pid for pid in _adopted if os.path.exists(f"/proc/{pid}")])
    unclear: dict[int, float] = {}
    for pid in children:
        group = _group_of_zombie(pid)
        if group is None:
            continue
        if pid in _adopted or group not in (pid, os.getpgrp()):
            _reap(pid)
        else:
            unclear[pid] = _undecided.get(pid) or _decide_at(now)
    old = {pid for pid, decide_at in unclear.items() if now >= decide_at}
    for pid in old - _waited_for(old):
        _reap(pid)
        del unclear[pid]
    for pid in old & unclear.keys():
        unclear[pid] = _decide_at(now)
    _undecided.clear()
    _undecided.update(unclear)
    return min(unclear.values(), default=None)


def _decide_at(now: float) -> float:
    """The time to decide: at least `_DECIDE_AFTER` from now, and the same for many children, as
    deciding takes milliseconds."""
    return (now // _DECIDE_AFTER + 2) * _DECIDE_AFTER


def descendants(pid: int) -> list[int]:
    """Every descendant of a process."""
    return list(_descendants_of([pid]))


def _descendants_of(roots: Iterable[int]) -> Iterator[int]:
    """Every descendant of these processes."""
    waiting = list(roots)
    while waiting:
        children = _children(waiting.pop())
        yield from children
        waiting += children


def _children(pid: int) -> list[int]:
    found: list[int] = []
    if not _HAS_PROC:
        import psutil

        with suppress(psutil.Error):
            found += [each.pid for each in psutil.Process(pid).children()]
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def _environ(pid: int) -> bytes | None:
    """The initial environment of a process; `None` if it has ended or may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return None
    return environ if environ or _group_of_zombie(pid) is None else None


def _kill(pids: Iterable[int]) -> list[int]:
    """Send SIGKILL; returns the processes that were signalled or had already ended."""
    killed: list[int] = []
    for pid in pids:
        with suppress(PermissionError):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def _group_of_zombie(pid: int) -> int | None:
    """The process group of a child that has ended; `None` if it runs, or is not a child."""
    with suppress(ChildProcessError, ProcessLookupError):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return os.getpgid(pid)
    return None


def _waited_for(pids: set[int]) -> set[int]:
    """The processes that a `Popen` of the standard library has not reaped."""
    if not pids:
        return set()
    import gc

    names = ("subprocess", "multiprocessing.popen_fork")
    kinds = tuple(sys.modules[name].Popen for name in names if name in sys.modules)
    return {
        members["pid"]
        for each in gc.get_objects()
        # Not `isinstance`, which runs code of proxy objects. A `Popen` that another thread is
        # creating has no attributes yet.
        if issubclass(type(each), kinds)
        and (members := vars(each)).get("pid") in pids
        and members.get("returncode") is None
    }


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
