"""Names of components: the default one, derived from the command, and one that is not taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import PurePath
from typing import Final

__all__ = ["command_name", "untaken_name"]

_LAUNCHER: Final = r"(python|pypy|node|bun|deno|ruby|npx|uvx|uv|npm)[0-9.]*"
_VERBS: Final = frozenset({"run", "exec", "x"})


def command_name(argv: Sequence[str]) -> str:
    """The program's file name or, for an interpreter or launcher, that of the script or package:
    `claude-agent-acp`; `python proxy.py` gives `proxy`, `npx -y @org/agent@1.2` gives `agent`."""
    program = PurePath(argv[0].rstrip("/")).name
    if not re.fullmatch(_LAUNCHER, program):
        return program
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, program)
        if word == "-c":
            return program
        if word.startswith("-") or word in _VERBS:
            continue
        name = PurePath(word).name
        return name.removesuffix(".py").removesuffix(".js").partition("@")[0] or program
    return program


def untaken_name(name: str, taken: set[str]) -> str:
    """The name, which is added to those that are taken; a second `context` is `context-2`."""
    numbered = (f"{name}-{number}" for number in count(2))
    found = next(each for each in chain([name], numbered) if each not in taken)
    taken.add(found)
    return found
