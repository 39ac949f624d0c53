from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from proxies.shared.own_files import lock_file, open_own


def test_a_new_file_is_for_its_owner_only(tmp_path):
    before = os.umask(0)
    try:
        descriptor = open_own(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    finally:
        os.umask(before)
    with open(descriptor):
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600


@pytest.mark.parametrize("kind", ["pipe", "directory", "link", "device"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(kind, tmp_path):
    path = tmp_path / "a"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            (tmp_path / "b").write_text("b")
            path.symlink_to(tmp_path / "b")
        case "device":
            path = Path(os.devnull)
    with pytest.raises(OSError, match=r"not a regular file of this user|symbolic links"):
        open_own(path, os.O_RDONLY)


def test_no_file_of_another_user_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("x")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="not a regular file of this user"):
        open_own(path, os.O_RDONLY)


def test_a_lock_that_another_process_keeps_is_an_error(tmp_path):
    path = tmp_path / "a"
    path.write_text("")
    with path.open() as one, path.open() as other:
        lock_file(one.fileno(), 0.0)
        with pytest.raises(BlockingIOError, match="another process has locked it"):
            lock_file(other.fileno(), 0.01)
        fcntl.flock(one, fcntl.LOCK_UN)
        lock_file(other.fileno(), 0.0)
