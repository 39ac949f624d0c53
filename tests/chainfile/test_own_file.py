"""Files that others could have written are not read."""

from __future__ import annotations

import os

import pytest

from conductor.chainfile.trust_store import UnreadableFile, UnsafeFile, read_own_file


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_a_file_of_another_user_is_refused(file, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(file).st_uid + 1)
    if os.stat(file).st_uid == 0:
        os.chown(file, 4321, -1)

    with pytest.raises(UnsafeFile, match="belongs to another user"):
        read_own_file(str(file))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UnsafeFile, match="not a regular file"):
        read_own_file(str(tmp_path / "pipe"))


def test_a_long_file_is_refused(file):
    file.write_bytes(b" " * (256 * 1024 + 1))

    with pytest.raises(UnsafeFile, match="longer than 256 KiB"):
        read_own_file(str(file))


def test_a_missing_file_is_told_apart(tmp_path):
    with pytest.raises(UnreadableFile, match="there is no such file") as caught:
        read_own_file(str(tmp_path / "none"))
    assert not isinstance(caught.value, UnsafeFile)
