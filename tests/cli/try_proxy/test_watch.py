"""`try --watch`."""

from __future__ import annotations

import pytest
from support.try_notes import HEAD, NOTES


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
