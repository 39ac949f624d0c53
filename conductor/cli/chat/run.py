"""`chat`: one session, a turn for each prompt that the user enters."""

from __future__ import annotations

import os
import shlex
from typing import NoReturn

import attrs
import click

from conductor.chainfile.model import ChainFile
from conductor.cli.chat.own_commands import LEAVING, Attached, Attaching, attaching_command
from conductor.cli.chat.prompt_line import PromptLine
from conductor.cli.prompt.attachments import AttachmentError
from conductor.cli.prompt.chain_run import ChainRun, RunSettings, run_chain, take_stdout
from conductor.cli.prompt.conversation import Conversation
from conductor.cli.prompt.display import Stdout
from conductor.cli.prompt.permissions import PermissionPrompt
from conductor.cli.prompt.rich_display import RichDisplay
from conductor.errors import ConnectionClosed, RequestError

__all__ = ["run_chat"]


def run_chat(chain: ChainFile, settings: RunSettings) -> NoReturn:
    """Talk until the user leaves, and exit the process."""
    if not all(map(os.isatty, (0, 1, 2))):
        raise click.UsageError("chat needs a terminal; `acp-conductor prompt` does not")
    stdout = Stdout(take_stdout(settings))
    display = RichDisplay(stdout)
    permissions = PermissionPrompt(settings.permissions or "ask", 0, display)
    conversation = Conversation(display, permissions)
    chat = _Chat(conversation, display, PromptLine(stdout.fd, display.view))
    run_chain(ChainRun(settings, conversation, chat.talk, history=True, stays=True), chain)


@attrs.define(eq=False)
class _Chat:
    conversation: Conversation
    display: RichDisplay
    line: PromptLine
    attached: Attached = attrs.field(factory=Attached, init=False)

    async def talk(self) -> int:
        """Take turns until the user leaves; return the exit code."""
        session = self.conversation.session
        self.display.note(f"session {session}; Ctrl-D or /exit leaves")
        while (text := await self._read()) not in (None, *LEAVING):
            assert text is not None
            if (command := attaching_command(text)) is not None:
                self._attach(*command)
            elif text:
                await self._take_turn(text)
        if self.conversation.capabilities.load or self.conversation.capabilities.resume:
            self.display.note(f"to continue: --session {shlex.quote(str(session))}")
        return 0

    async def _read(self) -> str | None:
        """The next prompt; None if the user leaves, empty if there is none."""
        async with self.conversation.permissions.question_lock:
            self.display.hold(self.line.show_above)
            try:
                text = await self.line.read(self.conversation.client.ended)
            except KeyboardInterrupt:
                text = ""
            finally:
                self.display.release()
        if self.conversation.client.ended.is_set():
            raise ConnectionClosed("the chain has ended")
        return None if text is None else text.strip()

    def _attach(self, command: Attaching, path: str) -> None:
        try:
            found = self.attached.add(command, path, self.conversation.capabilities)
        except AttachmentError as exc:
            self.display.note(f"error: {exc}")
        else:
            size = f"{len(found.data)} bytes, {found.media_type}"
            self.display.note(f"with the next prompt: {found.path.name} ({size})")

    async def _take_turn(self, text: str) -> None:
        try:
            blocks = [*self.attached.take(), {"type": "text", "text": text}]
            await self.conversation.prompt(blocks)
        except RequestError as exc:
            self.display.failed(self.conversation.step, exc)
