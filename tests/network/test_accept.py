"""Accepting connections while resources are exhausted."""

from __future__ import annotations

import errno

import pytest

from conductor.network.accept import accept


async def test_accept_retries_while_descriptors_are_exhausted(autojump_clock):
    class Listener:
        tries = 0

        async def accept(self):
            self.tries += 1
            if self.tries < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return "stream"

    assert await accept(Listener()) == "stream"


async def test_an_error_of_the_listener_is_raised():
    class Listener:
        async def accept(self):
            raise OSError(errno.EINVAL, "Invalid argument")

    with pytest.raises(OSError, match="Invalid"):
        await accept(Listener())
