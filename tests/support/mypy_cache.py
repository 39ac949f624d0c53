"""Runs of mypy that check only what the checkout's own run has not checked."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["mypy_cache"]

_CACHE = Path(__file__).parents[2] / ".mypy_cache"


def mypy_cache(directory: Path) -> Path:
    """A cache in this directory: a copy of the checkout's, or empty if that does not exist.

    mypy compares contents, so modules that were installed elsewhere are found in it: a run takes
    1 to 2 s instead of 6 to 10.
    """
    if _CACHE.is_dir():
        shutil.copytree(_CACHE, directory)
    return directory
