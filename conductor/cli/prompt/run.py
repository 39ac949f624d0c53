"""One prompt: a chain in this process, one session, one turn, one exit code.

The first SIGINT cancels the turn and waits for the agent to end it; the first SIGTERM or SIGHUP
stops the chain in order; a second signal kills it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NoReturn

import attrs
import click
import trio

from conductor.background_tasks import background_tasks
from conductor.chain.abandoned_plugins import abandoned_plugins
from conductor.chain.chain import Chain
from conductor.chain.stdio_server import exit_now
from conductor.chain.watchdog import Watchdog, max_stop_seconds, watchdog
from conductor.chainfile.model import ChainFile
from conductor.cli.attached_chain import SIGNALS
from conductor.cli.login_help import (
    AUTH_CAPABILITY,
    is_authentication_required,
    next_steps,
    offered_methods,
)
from conductor.cli.prompt.display import Display, JsonDisplay, Stdout, TextDisplay, one_line
from conductor.cli.prompt.files import ClientFiles
from conductor.cli.prompt.permissions import PermissionPrompt, open_terminal
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.control.process import open_control
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.tracing.recorder import Recorder
from conductor.tracing.trace_writer import TraceWriter
from conductor.transport.orphan_guard import start_orphan_guard
from conductor.transport.process_tree import become_subreaper, kill_descendants

__all__ = ["PromptSettings", "run_prompt"]

_VERSION: Final = 1


@attrs.frozen
class PromptSettings:
    """The options of `prompt`."""

    cwd: str
    permissions: Literal["ask", "allow", "deny"] | None
    fs: Literal["off", "read", "write"]
    as_json: bool
    trace: TraceWriter | None = None
    authenticate: str | None = None
    """The id of the method to log in with, before the session is opened."""


def run_prompt(chain: ChainFile, text: str, settings: PromptSettings) -> NoReturn:
    """Send the prompt, print the events, and exit the process."""
    policy = settings.permissions
    if policy is None:
        policy = "ask" if sys.stdin.isatty() and sys.stderr.isatty() else "deny"
    terminal = open_terminal() if policy == "ask" else None
    if policy == "ask" and terminal is None:
        raise click.UsageError("--permissions ask needs a terminal to ask on")
    open_control(settings.trace)
    become_subreaper()
    start_orphan_guard()
    # Plugins run in this process: their output goes to stderr.
    stdout = os.dup(1)
    os.dup2(2, 1)
    display = (JsonDisplay if settings.as_json else TextDisplay)(Stdout(stdout))
    permissions = PermissionPrompt(policy, terminal, display)
    prompt_run = _PromptRun(text, settings, display, permissions)
    try:
        code = trio.run(prompt_run.run, chain)
    except BaseException:
        kill_descendants()
        if settings.trace is not None:
            settings.trace.close()
        raise
    prompt_run.leave(code)


@attrs.define(eq=False)
class _PromptRun:
    text: str
    settings: PromptSettings
    display: Display
    permissions: PermissionPrompt
    chain: Chain = attrs.field(init=False)
    client: Client = attrs.field(init=False)
    watchdog: Watchdog = attrs.field(init=False)
    session: str | None = None
    """The session with the running turn."""
    methods: list[Mapping[str, Any]] = attrs.field(factory=list)
    """The authentication methods that the agent offers."""
    signals: list[int] = attrs.field(factory=list)
    work: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def leave(self, code: int) -> NoReturn:
        """Exit the process, once the chain has ended."""
        trace = self.settings.trace
        if trace is not None and not self.signals:
            trace.linger()
        kill_descendants()
        if trace is not None:
            trace.close()
        exit_now(code)

    async def run(self, file: ChainFile) -> int:
        code = 1
        async with abandoned_plugins(lambda: self.leave(code)) as plugins:
            code = await self._run_chain(file, plugins)
        return code

    async def _run_chain(self, file: ChainFile, plugins: trio.Nursery) -> int:
        code = 1
        self.display.stdout.broken = self.work.cancel
        async with (
            background_tasks() as nursery,
            attach_file(
                partial(Client, handlers=self._handlers()), file, recorder=self._recorder(file)
            ) as attached,
        ):
            self.chain, self.client = attached.chain, attached.client
            self.chain.plugin_nursery = plugins
            await nursery.start(self._handle_signals)
            with self.work:
                code = await self._run_turn(file)
            self.watchdog.end_within(max_stop_seconds(self.chain.stop_timeout))
            self.display.end()
        if self.signals:
            return 128 + self.signals[0]
        return 128 + signal.SIGPIPE if self.display.stdout.is_broken else code

    def _recorder(self, file: ChainFile) -> Recorder:
        trace = self.settings.trace
        return Recorder(file.name) if trace is None else trace.recorder(file.name)

    async def _run_turn(self, file: ChainFile) -> int:
        step, failure = "initialize", 3
        try:
            answer = await self.client.initialize(
                version=_VERSION, capabilities=self._capabilities()
            )
            self.display.initialized(answer)
            if self.client.protocol_version != _VERSION:
                version = self.client.protocol_version
                reason = f"the agent speaks protocol version {version}, this client only {_VERSION}"
                self.display.failed(step, RequestError(-32022, reason))
                return failure
            self.methods = offered_methods(answer)
            failure = 1
            if self.settings.authenticate is not None:
                step = "authenticate"
                await self.client.request(step, {"methodId": self.settings.authenticate})
            step = "session/new"
            self.session = await self.client.new_session(
                self.settings.cwd, answered=self.display.opened
            )
            step = "session/prompt"
            await self.client.prompt(self.session, self.text, answered=self.display.ended)
        except RequestError as exc:
            self.display.failed(step, exc)
            if is_authentication_required(exc):
                for line in next_steps(self.methods, file):
                    print(f"  {one_line(line)}", file=sys.stderr, flush=True)
            return failure
        except RemoteProtocolError as exc:
            self.display.failed(step, RequestError(-32603, str(exc)))
            return failure
        except ConnectionClosed:
            if not self.signals:
                self.display.failed(step, RequestError(-32603, "the chain ended without an answer"))
            return failure
        finally:
            self.session = None
        return 0

    def _capabilities(self) -> dict[str, Any]:
        fs = self.settings.fs
        return {
            "fs": {"readTextFile": fs != "off", "writeTextFile": fs == "write"},
            "session": {"notices": {}},
            "auth": AUTH_CAPABILITY,
        }

    def _handlers(self) -> dict[str, Callable[[Any], Any]]:
        handlers: dict[str, Callable[[Any], Any]] = {
            "session/update": self._update,
            "session/request_permission": self.permissions.decide,
        }
        if self.settings.fs != "off":
            files = ClientFiles(self.settings.cwd)
            handlers["fs/read_text_file"] = files.read
            if self.settings.fs == "write":
                handlers["fs/write_text_file"] = files.write
        return handlers

    def _update(self, params: Any) -> None:
        update = params.get("update") if isinstance(params, Mapping) else None
        if isinstance(update, Mapping):
            self.display.update(str(params.get("sessionId")), update)

    async def _handle_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        stop_timeout = self.chain.stop_timeout
        with (
            trio.open_signal_receiver(*SIGNALS) as signals,
            watchdog(stop_timeout, SIGNALS) as self.watchdog,
        ):
            task_status.started()
            async for number in signals:
                self.signals.append(number)
                if len(self.signals) > 1:
                    self.chain.kill()
                    self.work.cancel()
                elif number == signal.SIGINT and self.session is not None:
                    self.permissions.cancel()
                    self.client.cancel(self.session)
                    self.display.note("cancelling; press again to kill the chain")
                else:
                    self.work.cancel()
