"""After each test no process is left."""

from __future__ import annotations

import pytest
from support.leftovers import descendants, left_behind


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    before = descendants()
    yield
    assert left_behind(before) == []
