"""After each test no process is left."""

from __future__ import annotations

import psutil
import pytest


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    before = {child.pid for child in psutil.Process().children()}
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    for child in left:
        child.kill()
    assert not left
