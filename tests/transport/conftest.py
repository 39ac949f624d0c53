"""Descriptors are counted: a transport closes those that it opened, and no others."""

import gc
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from support.leftovers import descendants, left_behind

from conductor.transport.epoll_loop import EpollFastPath, current_fast_path

PATIENCE = 30


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
