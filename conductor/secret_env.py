"""Take secrets from environment variables and erase them there.

Removing a variable from `os.environ` keeps it from children. The memory that the kernel shows as
`/proc/PID/environ` keeps the bytes that the process was started with, for every process of the same
user to read; they are overwritten here.
"""

from __future__ import annotations

import os

__all__ = ["take_secret"]


def take_secret(name: str) -> str | None:
    """The value of a variable, which is gone afterwards: from `os.environ`, from the environment of
    children, and from the memory that the kernel shows to other processes."""
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
