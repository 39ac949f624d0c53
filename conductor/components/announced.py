"""What installed packages announce as components, by name: `redact` is `proxies.redact:Redact`.

`importlib.metadata` says the same, but takes 15 ms to import, at every start: it can read e-mail
headers and zip archives. Here only what lies unpacked on `sys.path` is found, which is nearly
always all; who does not find a name here should look there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

__all__ = ["GROUP", "announced"]

GROUP = "conductor.components"
"""The entry-point group in which packages announce their components."""


def announced() -> dict[str, str]:
    """`module:Class` by name. Of two with the same name, the one earlier on `sys.path`."""
    return _announced(tuple(sys.path))


@cache
def _announced(path: tuple[str, ...]) -> dict[str, str]:
    """Looking costs milliseconds, and a server would do it for every client."""
    found: dict[str, str] = {}
    for folder in path:
        for text in _texts(folder or os.curdir):
            for name, value in _entries(text):
                found.setdefault(name, value)
    return found


def _texts(folder: str) -> Iterator[str]:
    """The entry points of the packages in a folder (packaging.python.org, "Entry points")."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            path = f"{folder}/{name}/entry_points.txt"
            with suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
                yield file.read()


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of each entry of our group."""
    ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            ours = line == f"[{GROUP}]"
        elif ours and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()
