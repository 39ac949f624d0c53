"""Command-line arguments of a terminal login: written for the client, and parsed at a start.

A client starts a terminal login with the command line of the chain, `--login`, a `--env=NAME` for
each variable of the method, and `--` with the agent's own arguments behind it. Values of variables
are in no argument. Imports nothing heavy: every command reads its words first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["AgentLogin", "TerminalLogin", "login_words", "split_login", "terminal_login_of"]

TerminalLogin: TypeAlias = Literal["kept", "appended", "redirected", "withheld"]
"""How a login method of type `terminal` reaches the client: unchanged; unchanged, because this
program appends its arguments to the agent's command; with arguments for this program (`--login`);
or left out."""
_WORD: Final = "--login"
_SERVING: Final[dict[str, TerminalLogin]] = {
    "run": "redirected",
    "agent": "redirected",
    "connect": "withheld",
    "wrap": "appended",
    "proxy": "kept",
}
"""How each command that serves a client passes terminal logins on. Behind `wrap`, all arguments
belong to the agent."""


class AgentLogin(NamedTuple):
    """The parsed arguments behind `--login`."""

    args: tuple[str, ...]
    """Arguments for the agent, after its own."""
    names: tuple[str, ...] = ()
    """Variables of this process that override those of the agent."""

    @property
    def env(self) -> dict[str, str]:
        return {name: os.environ[name] for name in self.names if name in os.environ}


def login_words(args: Sequence[str], names: Iterable[str]) -> list[str]:
    """The words behind the command line of a chain that start its agent's login."""
    return [_WORD, *(f"--env={name}" for name in names), "--", *args]


def terminal_login_of(arguments: Sequence[str]) -> TerminalLogin:
    """How this command line passes terminal logins on to its client."""
    return next((_SERVING[word] for word in arguments if word in _SERVING), "kept")


def split_login(arguments: Sequence[str]) -> tuple[Sequence[str], AgentLogin | None]:
    """The command line of a chain, and the login that is asked for instead of the chain."""
    if _WORD not in arguments or terminal_login_of(arguments) != "redirected":
        return arguments, None
    at = list(arguments).index(_WORD)
    words = list(arguments[at + 1 :])
    names = []
    while words and words[0].startswith("--env="):
        names.append(words.pop(0).removeprefix("--env="))
    if words[:1] == ["--"]:
        del words[0]
    return arguments[:at], AgentLogin(tuple(words), tuple(names))
