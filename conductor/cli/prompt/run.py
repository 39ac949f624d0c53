"""`prompt`: one session, its prompts one after the other, one exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import attrs
import click

from conductor.chainfile.model import ChainFile
from conductor.cli.prompt.attachments import Attachment, prompt_blocks
from conductor.cli.prompt.chain_run import PromptRun, RunSettings, run_chain
from conductor.cli.prompt.conversation import Conversation
from conductor.cli.prompt.display import Display, JsonDisplay, Stdout, TextDisplay
from conductor.cli.prompt.exit_codes import exit_code_of
from conductor.cli.prompt.permissions import PermissionPrompt, open_terminal
from conductor.cli.trial import take_stdout
from conductor.control.process import open_control
from conductor.exit_codes import ExitCode

__all__ = ["display_for", "run_prompt"]


def run_prompt(
    chain: ChainFile,
    texts: Sequence[str],
    attachments: Sequence[Attachment],
    settings: RunSettings,
    *,
    as_json: bool,
) -> NoReturn:
    """Send the prompts, print the events, and exit the process."""
    policy = settings.permissions
    if policy is None:
        policy = "ask" if sys.stdin.isatty() and sys.stderr.isatty() else "deny"
    terminal = open_terminal() if policy == "ask" else None
    if policy == "ask" and terminal is None:
        raise click.UsageError("--permissions ask needs a terminal to ask on")
    open_control(settings.trace)
    stdout = Stdout(take_stdout())
    display = JsonDisplay(stdout) if as_json else display_for(stdout)
    conversation = Conversation(display, PermissionPrompt(policy, terminal, display))
    talk = _Prompts(conversation, texts, attachments).take_turns
    run_chain(PromptRun(settings, conversation, talk), chain)


def display_for(stdout: Stdout) -> Display:
    """Markdown and tool calls on a terminal; plain text if anything is piped, or TERM=dumb."""
    if not (stdout.is_terminal and sys.stderr.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return TextDisplay(stdout)
    from conductor.cli.prompt.rich_display import RichDisplay

    return RichDisplay(stdout)


@attrs.define(eq=False)
class _Prompts:
    conversation: Conversation
    texts: Sequence[str]
    attachments: Sequence[Attachment]

    async def take_turns(self) -> int:
        """Send the prompts until one does not end with `end_turn`, or a part of the chain fails;
        the first has the attachments."""
        code, attachments = 0, self.attachments
        for text in self.texts:
            blocks = prompt_blocks(text, attachments, self.conversation.capabilities)
            code = exit_code_of(await self.conversation.prompt(blocks))
            if code == ExitCode.DONE and self.conversation.failures:
                code = ExitCode.FAILED
            if code:
                break
            attachments = ()
        return code
