from __future__ import annotations

import pytest
from support.try_notes import HEAD


@pytest.fixture
def write(tmp_path):
    """Write a proxy file; returns its name."""

    def write(text, name="notes.py"):
        (tmp_path / name).write_text(HEAD + text)
        return name

    return write
