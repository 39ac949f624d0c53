"""The file that a mistyped path probably means."""

from __future__ import annotations

import os

from conductor.chainfile.diagnostics import closest_match

__all__ = ["similar_file"]


def similar_file(path: str, endings: tuple[str, ...]) -> str | None:
    """Path of the file in the same directory, with one of these endings and a similar name.

    Raises `OSError` if the directory cannot be listed.
    """
    directory, name = os.path.split(path)
    files = [each for each in os.listdir(directory or ".") if each.endswith(endings)]
    meant = closest_match(name, files)
    return None if meant is None else os.path.join(directory, meant)
