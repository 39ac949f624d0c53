"""Records of the lock files that are in use."""

from __future__ import annotations

import os
import time

from conductor.registry.uses import forget_missing, known_lock_files, note_lock_file, note_pin


def test_lock_files_are_known_once_until_they_are_gone(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    for name in ("a.lock", "b.lock"):
        (tmp_path / name).touch()
        note_lock_file(name)
        note_lock_file(str(tmp_path / name))
    assert sorted(known_lock_files()) == [str(tmp_path / "a.lock"), str(tmp_path / "b.lock")]

    (tmp_path / "a.lock").unlink()

    assert list(known_lock_files()) == [str(tmp_path / "b.lock")]
    assert len((store / "lock-files").read_text().splitlines()) == 2
    forget_missing()
    assert len((store / "lock-files").read_text().splitlines()) == 1


def test_a_store_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))

    note_lock_file("a.lock")
    note_pin(tmp_path / "missing")

    assert list(known_lock_files()) == []


def test_the_time_of_a_pin_is_its_last_use(tmp_path):
    path = tmp_path / "pin.json"
    path.touch()
    os.utime(path, (1, 1))

    note_pin(path)

    assert time.time() - path.stat().st_mtime < 60
