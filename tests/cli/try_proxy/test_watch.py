"""`try --watch`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.try_notes import HEAD, NOTES

from conductor.cli.try_proxy.watch import changed_files, file_stamps


@pytest.mark.slow
def test_watch_runs_again_after_a_change(terminal, write, tmp_path):
    name = write(NOTES)
    shown = terminal("try", "--watch", "--prompt", "say hello", name)
    shown.wait_for('"HELLO"')
    shown.wait_for("--- waiting for changes")

    (tmp_path / "notes.py").write_text("def broken(:\n")
    shown.wait_for("--- notes.py changed ---")
    shown.wait_for("SyntaxError: invalid syntax")

    (tmp_path / "notes.py").write_text(HEAD + NOTES.replace("upper", "title"))
    shown.wait_for('"Hello"')
    shown.type("\x03")
    assert shown.exit_code() == 130


@pytest.mark.slow
def test_watch_ends_a_run_that_hangs(terminal, write, tmp_path):
    name = write(
        """import time


class Hanging(Proxy):
    @on_prompt
    async def hang(self, session, prompt, forward):
        print("it hangs", flush=True)
        time.sleep(1000)
"""
    )
    shown = terminal("try", "--watch", name)
    shown.wait_for("it hangs")

    (tmp_path / "helpers.py").write_text("")
    (tmp_path / "notes.py").write_text(HEAD + NOTES)
    shown.wait_for("--- helpers.py, notes.py changed ---")
    shown.wait_for('"HELLO"')
    shown.type("\x03")
    assert shown.exit_code() == 130


def test_a_file_has_changed_if_its_time_or_its_size_has(tmp_path):
    for name in ("same.py", "time.py", "size.py", "gone.py", "data.txt"):
        (tmp_path / name).write_text("x")
    before = file_stamps(tmp_path)
    for name in ("time.py", "size.py"):
        (tmp_path / name).write_text("xy" if name == "size.py" else "y")
        stamp = before[name][0] + (1 if name == "time.py" else 0)
        os.utime(tmp_path / name, ns=(stamp, stamp))
    Path(tmp_path / "gone.py").unlink()
    (tmp_path / "data.txt").write_text("y")
    (tmp_path / "new.py").write_text("")

    changed = changed_files(before, file_stamps(tmp_path))

    assert changed == ["gone.py", "new.py", "size.py", "time.py"]
