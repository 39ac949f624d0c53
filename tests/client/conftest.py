"""Programs with a chain leave no thread and no process behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

PATIENCE = 10
AGENT = "agent:\n  use: test-agent\n"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(psutil.Process().children())
    yield
    assert [each.name for each in threading.enumerate() if "acp" in each.name] == []
    # Tests of other directories make this process a subreaper: it adopts the guard process of an
    # agent that dies, which ends a moment later.
    _, left = psutil.wait_procs(set(psutil.Process().children()) - before, PATIENCE)
    assert left == []


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A chain of the test agent alone."""
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\n{AGENT}")
    return path
