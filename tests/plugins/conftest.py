from __future__ import annotations

import pytest

from conductor import log


@pytest.fixture
def logged(monkeypatch):
    """What is logged: (event, fields)."""
    found = []
    monkeypatch.setattr(log, "_level", 0)
    monkeypatch.setattr(log, "_emit", lambda _, *what: found.append(what))
    return found
