"""After each test no process is left."""

from __future__ import annotations

import psutil
import pytest
from support.editor import PATIENCE


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    started = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
    # The guard of an agent that was killed ends by itself, after it has looked for leftovers.
    _, left = psutil.wait_procs(started, PATIENCE)
    for child in left:
        child.kill()
    assert not left
