"""Descriptors are counted: a transport closes those that it opened, and no others."""

import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import pytest
from support.leftovers import descendants, left_behind

from conductor.transport.epoll_loop import EpollFastPath, current_fast_path
from conductor.transport.fd_transport import FdTransport

from . import fast_path


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process and no descriptor outlives a test."""
    processes = descendants()
    gc.collect()  # what earlier tests have left to it
    gc.freeze()  # the rest lives on: the next test need not traverse it
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert left_behind(processes) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(params=["epoll", "trio"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the epoll fast path, or without; for tests that have runs of their own."""
    monkeypatch.setenv("ACP_CONDUCTOR_EPOLL", "off" if request.param == "trio" else "on")
    return request.param


@pytest.fixture
async def served(backend: str) -> AsyncIterator[None]:
    """The test's run is served that way."""
    with EpollFastPath.installed():
        assert (current_fast_path() is not None) == (backend == "epoll")
        yield


@pytest.fixture
async def pipes() -> AsyncIterator[Callable[[], tuple[FdTransport, int, int]]]:
    """`fast_path.pipes`; what a test has not closed is closed at its end."""
    made: list[tuple[FdTransport, int, int]] = []
    inodes: dict[int, int] = {}

    def pipes() -> tuple[FdTransport, int, int]:
        made.append(fast_path.pipes())
        inodes.update((fd, os.fstat(fd).st_ino) for fd in made[-1][1:])
        return made[-1]

    yield pipes
    for end, *_ in made:
        end.close()
    for fd, inode in inodes.items():
        with suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                os.close(fd)
