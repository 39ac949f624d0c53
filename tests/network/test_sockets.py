"""Accepting connections while resources are exhausted."""

from __future__ import annotations

import errno

import pytest
import trio

from conductor.network.sockets import accept


class Listener:
    """Fails with these errors, then has a client."""

    def __init__(self, *errors):
        self.errors = list(errors)

    async def accept(self):
        if self.errors:
            raise self.errors.pop()
        return "stream"


async def test_accept_retries_while_descriptors_are_exhausted(autojump_clock):
    began = trio.current_time()
    exhausted = OSError(errno.EMFILE, "Too many open files")

    assert await accept(Listener(*[exhausted] * 50)) == "stream"
    assert trio.current_time() - began == pytest.approx(5)


async def test_an_error_of_the_listener_is_raised():
    with pytest.raises(OSError, match="Invalid"):
        await accept(Listener(OSError(errno.EINVAL, "Invalid argument")))
