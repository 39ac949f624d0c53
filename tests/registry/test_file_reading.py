"""Files of other persons: regular ones, of limited size."""

from __future__ import annotations

import os

import pytest

from conductor.errors import RegistryError
from conductor.registry.file_reading import read_regular_file
from conductor.registry.lock_file import read_lock
from conductor.registry.source import load_registry


def test_content_and_time_are_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"content")

    assert read_regular_file(str(path), 10, "it") == (b"content", path.stat().st_mtime)


@pytest.mark.parametrize("read", [read_lock, load_registry])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_would_block_or_never_end_is_refused(tmp_path, read, kind):
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(RegistryError, match="no regular file"):
        read(str(path))


def test_a_file_over_the_limit_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(100))

    with pytest.raises(RegistryError, match="larger than"):
        read_regular_file(str(path), 99, "it")
