"""`prompt`: a chain in this process and one session: signals, start, prompts one after the other,
and the exit code.

The first SIGINT cancels the turn and waits for the agent to end it; the first SIGTERM or SIGHUP
stops the chain in order; a second signal kills it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NoReturn

import attrs
import click
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.stdio_server import exit_now
from conductor.chainfile.model import ChainFile
from conductor.cli.login_help import (
    AUTH_CAPABILITY,
    is_authentication_required,
    next_steps,
    offered_methods,
)
from conductor.cli.prompt.conversation import Conversation, PermissionPrompt, open_terminal
from conductor.cli.prompt.display import Display, JsonDisplay, Stdout, TextDisplay, one_line
from conductor.cli.prompt.files import Attachment, AttachmentError, ClientFiles, prompt_blocks
from conductor.cli.trial import attached_chain, take_stdout
from conductor.client.acp_client import ChainClient
from conductor.client.embedding import attach_file
from conductor.control.process import open_control
from conductor.error_codes import INTERNAL_ERROR
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.exit_codes import ExitCode
from conductor.log import hold, release
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.trace_writer import TraceWriter
from conductor.transport.process_tree import kill_descendants

__all__ = ["RunSettings", "exit_code_of", "run_prompt"]


@attrs.frozen
class RunSettings:
    """The options of a session."""

    cwd: str
    permissions: Literal["ask", "allow", "deny"] | None
    fs: Literal["off", "read", "write"]
    trace: TraceWriter | None = None
    authenticate: str | None = None
    """The id of the method to log in with, before the session is opened."""
    session: str | None = None
    """The session to continue."""
    protocol: int = 1
    """The version of the protocol to offer."""


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
    display = JsonDisplay(stdout) if as_json else _display_for(stdout)
    conversation = Conversation(display, PermissionPrompt(policy, terminal, display))
    run = _PromptRun(settings, conversation, texts, attachments)
    hold()
    try:
        trio.run(run.run, chain)
    except BaseException:
        display.end()
        release()
        kill_descendants()
        if settings.trace is not None:
            settings.trace.close()
        raise
    run.leave()


def _display_for(stdout: Stdout) -> Display:
    """Markdown and tool calls on a terminal; plain text if anything is piped, or TERM=dumb."""
    if not (stdout.is_terminal and sys.stderr.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return TextDisplay(stdout)
    from conductor.cli.prompt.rich_display import RichDisplay

    return RichDisplay(stdout)


@attrs.define(eq=False)
class _PromptRun:
    """A chain and a conversation with its agent."""

    settings: RunSettings
    conversation: Conversation
    texts: Sequence[str]
    attachments: Sequence[Attachment]
    code: int = 1
    methods: list[Mapping[str, Any]] = attrs.field(factory=list)
    """The authentication methods that the agent offers."""
    signals: list[int] = attrs.field(factory=list)

    @property
    def display(self) -> Display:
        return self.conversation.display

    def leave(self) -> NoReturn:
        """Exit the process, once the chain has ended."""
        trace = self.settings.trace
        if trace is not None and not self.signals:
            trace.linger()
        kill_descendants()
        if trace is not None:
            trace.close()
        exit_now(self._exit_code())

    def _exit_code(self) -> int:
        if self.signals:
            return 128 + self.signals[0]
        if self.display.stdout.is_broken:
            return 128 + signal.SIGPIPE
        # A failure at the end of the session or of the chain comes after the last turn.
        return self.code or int(bool(self.conversation.failures))

    async def run(self, file: ChainFile) -> None:
        agent = file.agent.name if file.agent is not None else "agent"
        client = partial(ChainClient, handlers=self._handlers(), agent=agent)
        work = trio.CancelScope()
        self.display.stdout.broken = work.cancel
        async with (
            background_tasks() as nursery,
            attached_chain(
                attach_file(client, file, recorder=self._recorder(file)),
                self.signals,
                self.leave,
                interrupt=self._interrupt,
                note=self.display.note,
                before_exit=release,
            ) as attached,
        ):
            self.conversation.client = attached.client
            nursery.start_soon(self.display.refresh)
            try:
                with work:
                    self.code = await self._converse(file)
            finally:
                self.display.end()

    def _interrupt(self) -> bool:
        """Cancel the turn, if one runs."""
        if not self.conversation.in_turn:
            return False
        self.conversation.cancel()
        self.display.cancelling()
        return True

    def _recorder(self, file: ChainFile) -> TraceRecorder:
        trace = self.settings.trace
        return TraceRecorder(file.name) if trace is None else trace.recorder(file.name)

    async def _converse(self, file: ChainFile) -> int:
        """Start, open the session and talk. A failure is shown; returns the exit code."""
        conversation, failure = self.conversation, 3
        try:
            answer = await conversation.initialize(self.settings.protocol, self._capabilities())
            self.methods = offered_methods(answer)
            failure = 1
            await self._open()
            return await self._take_turns()
        except RequestError as exc:
            self._show_failure(exc)
            if is_authentication_required(exc):
                for line in next_steps(self.methods, file):
                    print(f"  {one_line(line)}", file=sys.stderr, flush=True)
        except RemoteProtocolError as exc:
            self._show_failure(RequestError(INTERNAL_ERROR, str(exc)))
        except AttachmentError as exc:
            self.display.note(f"error: {exc}")
        except ConnectionClosed:
            if not self.signals:
                self._show_failure(
                    RequestError(INTERNAL_ERROR, "the chain ended without an answer")
                )
        return failure

    async def _open(self) -> None:
        settings = self.settings
        if settings.authenticate is not None:
            await self.conversation.authenticate(settings.authenticate)
        if settings.session is None:
            await self.conversation.open(settings.cwd)
        else:
            await self.conversation.reopen(settings.session, settings.cwd)

    async def _take_turns(self) -> int:
        """Send the prompts until one does not end with `end_turn`, or a part of the chain fails;
        the first has the attachments."""
        conversation, code, attachments = self.conversation, 0, self.attachments
        for text in self.texts:
            blocks = prompt_blocks(text, attachments, conversation.capabilities)
            code = exit_code_of(await conversation.prompt(blocks))
            if code == ExitCode.DONE and conversation.failures:
                code = ExitCode.FAILED
            if code:
                break
            attachments = ()
        return code

    def _show_failure(self, error: RequestError) -> None:
        """Show the error of a request, unless a notice has said the same to a person."""
        is_told = any(told.endswith(f"] {error.message}") for told in self.conversation.failures)
        if not is_told or isinstance(self.display, JsonDisplay):
            self.display.failed(self.conversation.step, error)

    def _capabilities(self) -> dict[str, Any]:
        fs = self.settings.fs
        return {
            "fs": {"readTextFile": fs != "off", "writeTextFile": fs == "write"},
            "session": {"notices": {}},
            "auth": AUTH_CAPABILITY,
        }

    def _handlers(self) -> dict[str, Callable[[Any], Any]]:
        handlers: dict[str, Callable[[Any], Any]] = {
            "session/update": self.conversation.on_update,
            "session/request_permission": self.conversation.permissions.decide,
        }
        if self.settings.fs != "off":
            files = ClientFiles(self.settings.cwd)
            handlers["fs/read_text_file"] = files.read
            if self.settings.fs == "write":
                handlers["fs/write_text_file"] = files.write
        return handlers


_CODES: Final = {
    "end_turn": ExitCode.DONE,
    "refusal": ExitCode.REFUSAL,
    "max_tokens": ExitCode.MAX_TOKENS,
    "max_turn_requests": ExitCode.MAX_TURN_REQUESTS,
    "cancelled": ExitCode.CANCELLED,
    "error": ExitCode.FAILED,
}


def exit_code_of(stop_reason: object) -> int:
    """The exit code for a stop reason; an unknown one has a code too."""
    return _CODES.get(str(stop_reason), ExitCode.OTHER_STOP_REASON)
