"""What a component is called when nobody named it: after its program, or its script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

__all__ = ["command_name"]

_LAUNCHER: Final = re.compile(r"(python|pypy|node|bun|deno|ruby|npx|uvx|uv|npm)[0-9.]*")
_VERBS: Final = frozenset({"run", "exec", "x"})


def command_name(argv: Sequence[str]) -> str:
    """`claude-agent-acp`; behind an interpreter or a launcher, what it runs: `python proxy.py` is
    called `proxy`, `npx -y @org/agent@1.2` is called `agent`."""
    program = PurePath(argv[0].rstrip("/")).name
    if not _LAUNCHER.fullmatch(program):
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
