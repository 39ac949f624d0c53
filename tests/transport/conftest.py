"""Descriptors are counted: a transport closes what it opened, and nothing else."""

import gc
import os
from collections.abc import Iterator

import psutil
import pytest

PATIENCE = 30


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process and no descriptor outlives a test."""
    children = set(psutil.Process().children())
    gc.collect()  # what earlier tests have left to it
    before = len(os.listdir("/proc/self/fd"))
    yield
    _, left = psutil.wait_procs(set(psutil.Process().children()) - children, PATIENCE)
    assert left == []
    assert len(os.listdir("/proc/self/fd")) == before
