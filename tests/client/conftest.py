"""Programs with a chain leave no thread and no process behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.leftovers import descendants, left_behind

AGENT = "agent:\n  use: test-agent\n"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = descendants()
    yield
    assert [each.name for each in threading.enumerate() if "acp" in each.name] == []
    assert left_behind(before) == []


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A chain of the test agent alone."""
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\n{AGENT}")
    return path
