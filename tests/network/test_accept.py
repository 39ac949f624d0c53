"""Accepting connections while resources are exhausted."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
import trio

from conductor.network.accept import accept


class Listener:
    """Fails as often as given, then waits for a client."""

    def __init__(self, failures):
        self.failures = failures
        self.client = trio.Event()

    async def accept(self):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        await self.client.wait()
        return "stream"


@pytest.fixture
def events(monkeypatch):
    """The logged events."""
    events = []
    log = SimpleNamespace(warning=lambda event, **fields: events.append((event, fields)))
    monkeypatch.setattr("conductor.network.accept.log", log)
    return events


FAILED = ("accept failed", {"error": "Too many open files"})


async def test_accept_retries_while_descriptors_are_exhausted(autojump_clock, events):
    listener = Listener(50)
    listener.client.set()

    assert await accept(listener) == "stream"
    assert events == [FAILED, ("accept works again", {"seconds": 5.0})]


async def test_the_end_of_the_exhaustion_is_logged_before_a_client_connects(autojump_clock, events):
    listener = Listener(50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, listener)
        await trio.sleep(60)

        assert [event for event, _ in events] == ["accept failed", "accept works again"]

        listener.client.set()


async def test_a_second_exhaustion_is_logged_too(autojump_clock, events):
    for _ in range(2):
        listener = Listener(1)
        listener.client.set()
        await accept(listener)

    assert [event for event, _ in events] == ["accept failed", "accept works again"] * 2


async def test_an_error_of_the_listener_is_raised():
    class Broken:
        async def accept(self):
            raise OSError(errno.EINVAL, "Invalid argument")

    with pytest.raises(OSError, match="Invalid"):
        await accept(Broken())
