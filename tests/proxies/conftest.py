from __future__ import annotations

import pytest


@pytest.fixture
def project(tmp_path):
    """A directory with one file, for a session."""
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "a.txt").write_text("one")
    return directory
