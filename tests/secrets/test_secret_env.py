"""Secrets in environment variables are read once and erased."""

from __future__ import annotations

import os

from conductor.secrets.registered import take_secret

NAME = "ACP_TEST_SECRET_OF_ONE_TEST"


def test_a_secret_is_taken_once_and_leaves_the_environment(monkeypatch):
    monkeypatch.setenv(NAME, "s3cret")

    assert take_secret(NAME) == "s3cret"
    assert NAME not in os.environ
    assert take_secret(NAME) is None


def test_the_bytes_of_a_secret_are_overwritten_where_they_were(monkeypatch):
    import ctypes

    monkeypatch.setenv(NAME, "pässword")
    libc = ctypes.CDLL(None)
    libc.getenv.argtypes, libc.getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    seen = []
    memset = ctypes.memset

    def observed(address, value, count):
        seen.append(ctypes.string_at(address))
        memset(address, value, count)
        seen.append(ctypes.string_at(address, count))

    monkeypatch.setattr(ctypes, "memset", observed)
    take_secret(NAME)

    assert seen == ["pässword".encode(), bytes(len("pässword".encode()))]
    assert libc.getenv(NAME.encode()) is None
