"""The line in which the user types a prompt: prompt_toolkit, in a thread beside trio.

prompt_toolkit runs on asyncio. Output that arrives while the user types is shown above the line.
The thread ends with the line; if the reading task is cancelled, or the chain ends, the line is
given up, which restores the terminal.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TextIO

import attrs
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from conductor.background_tasks import background_tasks
from conductor.cli.chat.history import history_path, open_history
from conductor.cli.chat.own_commands import ATTACHING, OWN_COMMANDS
from conductor.cli.prompt.view import View
from conductor.cli.terminal_text import printable

__all__ = ["CommandCompleter", "PromptLine"]

_MAX_ABOVE: Final = 500


@attrs.define(eq=False)
class PromptLine:
    """Reads prompts from the terminal; shows the line on `fd`."""

    fd: int
    view: View
    _session: PromptSession[str] = attrs.field(init=False)
    _terminal: TextIO = attrs.field(init=False)
    _is_given_up: bool = attrs.field(default=False, init=False)
    _above: deque[str] = attrs.field(factory=lambda: deque(maxlen=_MAX_ABOVE), init=False)
    """Lines to show above the prompt, only the newest; added by trio's thread, removed by that of
    the prompt."""

    def __attrs_post_init__(self) -> None:
        self._terminal = os.fdopen(os.dup(self.fd), "w", errors="replace")
        self._session = PromptSession(
            history=open_history(history_path()),
            completer=CommandCompleter(self.view),
            complete_while_typing=True,
            key_bindings=_bindings(),
            multiline=True,
            prompt_continuation="  ",
            input=create_input(),
            output=create_output(stdout=self._terminal),
        )

    async def read(self, ended: trio.Event) -> str | None:
        """One prompt, with ends of lines if it has several; None at EOF, or once `ended` is set.
        Raises `KeyboardInterrupt` for Ctrl-C."""
        self._is_given_up = False
        try:
            async with background_tasks() as nursery:
                nursery.start_soon(self._give_up_after, ended)
                return await trio.to_thread.run_sync(self._read)
        finally:
            self._write_above()
        raise AssertionError

    def show_above(self, text: str) -> None:
        """Show lines above the prompt line; without one, above the next."""
        self._above.append(text)
        app = self._session.app
        if len(self._above) == 1 and app.loop is not None and app.is_running:
            with suppress(RuntimeError):  # the line has just ended
                app.loop.call_soon_threadsafe(self._redraw_below)

    def _redraw_below(self) -> None:
        if self._above:
            run_in_terminal(self._write_above)

    def _write_above(self) -> None:
        with suppress(OSError):
            while self._above:
                self._terminal.write(self._above.popleft())
            self._terminal.flush()

    def _read(self) -> str | None:
        message = FormattedText([("bold", "> ")])
        try:
            return self._session.prompt(message, pre_run=self._begin, handle_sigint=False)
        except EOFError:
            return None

    def _begin(self) -> None:
        self._check_given_up()
        asyncio.get_running_loop().call_soon(self._redraw_below)

    async def _give_up_after(self, ended: trio.Event) -> None:
        try:
            await ended.wait()
        finally:
            self._is_given_up = True
            app = self._session.app
            if app.loop is not None and app.is_running:
                app.loop.call_soon_threadsafe(self._check_given_up)

    def _check_given_up(self) -> None:
        app = self._session.app
        if self._is_given_up and app.is_running and not app.is_done:
            app.exit(exception=EOFError)


@attrs.frozen
class CommandCompleter(Completer):
    """Completes slash commands, those of the agent and of `chat`, and the path of `/file`."""

    view: View
    _paths: PathCompleter = attrs.field(factory=lambda: PathCompleter(expanduser=True), init=False)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        if space and name in ATTACHING and "\n" not in text:
            path = Document(rest.lstrip())
            yield from self._paths.get_completions(path, complete_event)
        if not text.startswith("/") or any(char.isspace() for char in text):
            return
        own = {name for name, _ in OWN_COMMANDS}
        agents = [each for each in self.view.commands if each[0] not in own]
        for name, about in (*agents, *OWN_COMMANDS):
            if name.startswith(text[1:]) and name.isprintable() and " " not in name:
                yield Completion(
                    name, 1 - len(text), display=f"/{name}", display_meta=printable(about)[:80]
                )


def _bindings() -> KeyBindings:
    """Enter sends, Alt-Enter begins a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
