from __future__ import annotations

import os

import pytest

from proxies.prompt_content.files import PromptFiles, TooLarge


def test_a_file_has_its_content_and_the_end_of_its_name(tmp_path):
    files = PromptFiles(tmp_path, 100)

    first, second = (files.write("s", "a.png", each) for each in (b"one", b"two"))

    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
    assert first.parent == second.parent
    assert first.name.endswith("a.png")
    files.close()


def test_what_is_too_large_removes_nothing(tmp_path):
    files = PromptFiles(tmp_path, 3)
    file = files.write("s", "a", b"one")

    with pytest.raises(TooLarge):
        files.write("s", "b", b"four")

    assert file.exists()
    files.close()


def test_files_of_another_session_stay(tmp_path):
    files = PromptFiles(tmp_path, 3)
    first, second = files.write("one", "a", b"one"), files.write("two", "a", b"two")

    files.delete("one")
    files.delete("unknown")

    assert not first.exists()
    assert second.exists()
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path):
    killed, running, new = (PromptFiles(tmp_path, 100) for _ in range(3))
    left = killed.write("s", "a", b"left")
    assert killed._lock is not None
    kept = running.write("s", "a", b"kept")
    assert left.exists()

    os.close(killed._lock)  # as the end of its process does
    new.write("s", "a", b"new")

    assert not left.exists()
    assert kept.exists()
    running.close()
    new.close()


def test_nothing_is_removed_behind_a_link_that_an_agent_has_put_in_its_place(tmp_path):
    """An agent in a sandbox reads them, so that it may be able to write their directory."""
    other = tmp_path / "work" / "project"
    other.mkdir(parents=True)
    (other / ".lock").touch()
    files = PromptFiles(tmp_path / "files", 100)
    files.parent.symlink_to(other.parent)

    with pytest.raises(NotADirectoryError):
        files.write("s", "a", b"content")
    files.parent.unlink()
    files.parent.mkdir()
    (files.parent / "left").symlink_to(other)
    files.write("s", "a", b"content")

    assert (other / ".lock").exists()
    files.close()


def test_nothing_is_made_before_the_first_file(tmp_path):
    files = PromptFiles(tmp_path / "files", 100)
    files.delete("s")
    files.close()

    assert list(tmp_path.iterdir()) == []
