"""Read secrets from environment variables and erase them there.

Removing a variable from `os.environ` hides it from child processes. `/proc/PID/environ` still shows
the initial bytes to every process of the same user, so `take_secret` overwrites them too.
"""

from __future__ import annotations

import os

__all__ = ["take_secret"]


def take_secret(name: str) -> str | None:
    """The value of a variable, `None` if unset. Removes it from `os.environ`, from the environment
    of children, and from `/proc/PID/environ`."""
    value = os.environ.get(name)
    if value is None:
        return None
    import ctypes  # takes 5 ms, and most programs have no such variable

    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = libc.getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(os.fsencode(value)))
    del os.environ[name]
    return value
