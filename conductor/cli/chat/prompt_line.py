"""The line in which the user types a prompt: prompt_toolkit, in a thread beside trio.

prompt_toolkit runs on asyncio. The thread ends with the line; if the reading task is cancelled, or
the chain ends, the line is given up, which restores the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from conductor.background_tasks import background_tasks
from conductor.cli.chat.history import history_path, open_history
from conductor.cli.prompt.view import View
from conductor.cli.terminal_text import printable

__all__ = ["CommandCompleter", "PromptLine"]

_OWN_COMMANDS = (("exit", "leave"),)


@attrs.define(eq=False)
class PromptLine:
    """Reads prompts from the terminal; shows the line on `fd`."""

    fd: int
    view: View
    _session: PromptSession[str] = attrs.field(init=False)
    _is_given_up: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        terminal = os.fdopen(os.dup(self.fd), "w", errors="replace")
        self._session = PromptSession(
            history=open_history(history_path()),
            completer=CommandCompleter(self.view),
            complete_while_typing=True,
            key_bindings=_bindings(),
            multiline=True,
            prompt_continuation="  ",
            input=create_input(),
            output=create_output(stdout=terminal),
        )

    async def read(self, ended: trio.Event) -> str | None:
        """One prompt, with ends of lines if it has several; None at EOF, or once `ended` is set.
        Raises `KeyboardInterrupt` for Ctrl-C."""
        self._is_given_up = False
        async with background_tasks() as nursery:
            nursery.start_soon(self._give_up_after, ended)
            return await trio.to_thread.run_sync(self._read)
        raise AssertionError

    def _read(self) -> str | None:
        message = FormattedText([("bold", "> ")])
        try:
            return self._session.prompt(message, pre_run=self._check_given_up, handle_sigint=False)
        except EOFError:
            return None

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
    """Completes slash commands: those of the agent and `/exit`."""

    view: View

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or any(char.isspace() for char in text):
            return
        for name, about in (*self.view.commands, *_OWN_COMMANDS):
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
