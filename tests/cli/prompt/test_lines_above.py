"""Lines printed while a display redraws a part of the screen."""

from __future__ import annotations

import pytest

from conductor.cli.prompt.rich_display import LinesAbove


def test_whole_lines_are_shown():
    shown = []
    file = LinesAbove(shown.append)

    print("one", file=file, flush=True)
    file.write("two\nthr")
    assert shown == ["one", "two"]
    file.write("ee\n")
    assert shown == ["one", "two", "three"]


def test_there_is_no_descriptor_to_write_past_the_display():
    with pytest.raises(OSError):
        LinesAbove(print).fileno()
