"""The file of the history."""

from __future__ import annotations

import os
import stat

from conductor.cli.chat.history import open_history


def entries(path):
    return list(open_history(path).load_history_strings())


def test_prompts_are_kept_for_the_next_time_and_for_nobody_else(tmp_path):
    path = tmp_path / "state" / "chat-history"

    open_history(path).store_string("first\nof two lines")

    assert entries(path) == ["first\nof two lines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_can_read_is_made_private(tmp_path):
    path = tmp_path / "chat-history"
    path.touch(0o644)
    os.chmod(path, 0o644)

    open_history(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_prompt_that_begins_with_a_space_is_not_kept(tmp_path):
    open_history(tmp_path / "h").store_string(" the key is 1234")

    assert entries(tmp_path / "h") == []


def test_a_large_file_keeps_its_newest_entries(tmp_path):
    path = tmp_path / "h"
    path.write_text("".join(f"\n# time\n+{n:010}\n" for n in range(60_000)))

    kept = entries(path)

    assert path.stat().st_size <= 2**19
    assert kept[0] == "0000059999"
    assert len(kept) > 20_000


def test_without_a_file_the_history_is_in_memory(tmp_path):
    (tmp_path / "file").touch()

    history = open_history(tmp_path / "file" / "h")
    history.append_string("kept")

    assert history.get_strings() == ["kept"]
