"""Answer `session/request_permission` by policy or by asking on the terminal, one at a time."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import attrs
import trio

from conductor.cli.prompt.content import options_of
from conductor.cli.prompt.display import Display
from conductor.proxy.permission_options import choose_option

__all__ = ["PermissionPrompt", "open_terminal"]

_CANCELLED: Final = {"outcome": "cancelled"}


def open_terminal() -> int | None:
    """A file descriptor for reading the terminal; `None` without a terminal."""
    if sys.stdin.isatty():
        return 0
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


@attrs.define(eq=False)
class PermissionPrompt:
    """The permission policy of one run."""

    policy: Literal["ask", "allow", "deny"]
    terminal: int | None
    display: Display
    _cancelled: bool = attrs.field(default=False, init=False)
    question_lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while the terminal is read."""
    _open_questions: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    _is_reading: bool = attrs.field(default=False, init=False)
    """Whether the cursor is behind "Which?"."""

    def new_turn(self) -> None:
        """Ask again, after a cancelled turn."""
        self._cancelled = False

    def cancel(self) -> None:
        """Answer open and later questions as cancelled (ACP: prompt turn, cancellation)."""
        self._cancelled = True
        if self._is_reading:
            self._is_reading = False
            os.write(2, b"\n")
        for scope in self._open_questions:
            scope.cancel()

    async def decide(self, params: Any) -> dict[str, Any]:
        """The result of a `session/request_permission` request."""
        request: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
        options = options_of(request)
        outcome: Mapping[str, Any] = _CANCELLED
        if self.policy == "ask":
            scope = trio.CancelScope()
            self._open_questions.add(scope)
            with scope:
                if self._cancelled:
                    scope.cancel()
                async with self.question_lock:
                    outcome = _selected(await self._ask(request, options))
            self._open_questions.discard(scope)
        else:
            id = choose_option("deny" if self.policy == "deny" else "allow_once", options)
            if id is None and self.policy == "allow" and not _has_kind(options, "allow_once"):
                id = choose_option("allow_always", options)
            if id is not None:
                outcome = {"outcome": "selected", "optionId": id}
            elif self.policy == "allow" and options:
                self.display.note("not allowed: its options are answers, or allow more")
        self.display.permission(request, outcome)
        return {"outcome": outcome}

    async def _ask(
        self, request: Mapping[str, Any], options: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        self.display.ask(request, options)
        # Discard input typed before the question.
        assert self.terminal is not None
        with suppress(termios.error):
            termios.tcflush(self.terminal, termios.TCIFLUSH)
        while options:
            os.write(2, f"Which? [1-{len(options)}] ".encode())
            self._is_reading = True
            line = await self._read_line()
            self._is_reading = False
            if line is None:
                return None
            if line.isdecimal() and 1 <= int(line) <= len(options):
                return options[int(line) - 1]
            os.write(
                2, f"no option {line[:40]!r}: type a number; Ctrl-C cancels the turn\n".encode()
            )
        return None

    async def _read_line(self) -> str | None:
        """One line from the terminal; `None` at EOF."""
        assert self.terminal is not None
        await trio.lowlevel.wait_readable(self.terminal)
        try:
            line = os.read(self.terminal, 4096)
        except OSError:
            return None
        return line.decode(errors="replace").strip() if line else None


def _has_kind(options: Sequence[Mapping[str, Any]], kind: str) -> bool:
    return any(option.get("kind") == kind for option in options)


def _selected(option: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if option is None:
        return _CANCELLED
    return {"outcome": "selected", "optionId": option.get("optionId")}
