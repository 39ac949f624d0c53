"""pytest plugin with the fixtures `acp_chain`, `recorded` and `virtual_clock`.

Imports nothing until one is used. The failure of a test that uses one is shown without exception
groups (`readable`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from conductor.testing.fakes import FakeClient
    from conductor.testing.recorded_session import RecordedSession

__all__ = ["acp_chain", "recorded", "virtual_clock"]

_FIXTURES = {"acp_chain", "recorded", "virtual_clock"}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Raise what a test of a chain raises in the form in which pytest can show it."""
    __tracebackhide__ = True
    try:
        return (yield)
    except Exception as exc:
        if _FIXTURES.isdisjoint(pyfuncitem.fixturenames):
            raise
        from conductor.testing.failures import readable

        shown = readable(exc, full=pyfuncitem.config.getoption("fulltrace", default=False))
    before = shown.__context__
    try:
        raise shown
    finally:
        shown.__context__ = before


@pytest.fixture
def acp_chain() -> Callable[..., AbstractAsyncContextManager[FakeClient]]:
    """`conductor.testing.open_chain`: `async with acp_chain(MyProxy(), agent) as client:`."""
    from conductor.testing.chain import open_chain

    return open_chain


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[..., RecordedSession]:
    """`RecordedSession.load`: `session = recorded("session.jsonl")`, in the test's directory."""
    from conductor.testing.recorded_session import RecordedSession

    def load(name: str | os.PathLike[str], *, chain: str | None = None) -> RecordedSession:
        beside = request.path.parent / name
        return RecordedSession.load(beside if beside.is_file() else name, chain=chain)

    return load


@pytest.fixture
def virtual_clock() -> MockClock:
    """A trio clock that jumps to the next deadline when all tasks wait.

    pytest-trio uses it for a test that has this fixture among its arguments.
    """
    from trio.testing import MockClock

    return MockClock(autojump_threshold=0)
