"""One session with an agent, in both protocol versions: opened or continued, then turn after turn.

In version 1 the response to `session/prompt` ends a turn, in version 2 an update of the session's
state. Messages of the agent go to the display; `failed` of it tells what went wrong, once.
Permission requests are answered by a policy, or by asking on the terminal, one at a time.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import attrs
import trio

from conductor.acp.turns import Ended, SessionTurns, Turns
from conductor.background_tasks import background_tasks
from conductor.cli.prompt.content import as_mapping, options_of
from conductor.cli.prompt.display import Display
from conductor.client.acp_client import ChainClient
from conductor.error_codes import METHOD_NOT_FOUND, PROTOCOL_VERSION
from conductor.errors import ConnectionClosed, RequestError
from conductor.proxy.permission_options import choose_option
from conductor.routing.notices import is_failure

__all__ = [
    "Conversation",
    "DeclaredCapabilities",
    "PermissionPrompt",
    "declared_capabilities",
    "open_terminal",
]


@attrs.frozen
class DeclaredCapabilities:
    """The capabilities of an agent."""

    image: bool = False
    """Prompts may have images."""
    embedded_context: bool = False
    """Prompts may have the content of files; links are always allowed."""
    load: bool = False
    """`session/load`: continue a session, with its history."""
    resume: bool = False
    """`session/resume`: continue a session."""


@attrs.define(eq=False)
class Conversation:
    """A session of `client`."""

    display: Display
    permissions: PermissionPrompt
    client: ChainClient = attrs.field(init=False)
    capabilities: DeclaredCapabilities = attrs.field(factory=DeclaredCapabilities, init=False)
    session: str | None = attrs.field(default=None, init=False)
    step: str = attrs.field(default="initialize", init=False)
    """The request that is waited for, for error messages."""
    in_turn: bool = attrs.field(default=False, init=False)
    is_cancelling: bool = attrs.field(default=False, init=False)
    failures: list[str] = attrs.field(factory=list, init=False)
    """The titles of the failures that the chain has told of, even if the turn went on."""
    _is_replaying: bool = attrs.field(default=False, init=False)
    _turns: SessionTurns[Any] = attrs.field(factory=lambda: Turns[Any](2).of(""), init=False)
    """Version 2: the turns of the session."""
    _prompt: object = attrs.field(factory=object, init=False)
    """The last prompt."""
    _idle: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ending: dict[str, Any] = attrs.field(factory=dict, init=False)

    async def initialize(self, version: int, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """Offer a version of the protocol; return the agent's answer."""
        if version != 1:  # version 2 has no files of the client
            capabilities = {k: v for k, v in capabilities.items() if k != "fs"}
        answer = await self.client.initialize(version=version, capabilities=capabilities)
        self.display.initialized(answer)
        chosen = self.client.protocol_version
        if chosen not in (1, 2):
            reason = f"the agent speaks protocol version {chosen}, this client 1 and 2"
            raise RequestError(PROTOCOL_VERSION, reason)
        self.capabilities = declared_capabilities(answer, chosen)
        return answer

    async def authenticate(self, method: str) -> None:
        self.step = "authenticate" if self.client.protocol_version == 1 else "auth/login"
        await self.client.request(self.step, {"methodId": method})

    async def open(self, cwd: str) -> None:
        self.step = "session/new"
        self.session = await self.client.new_session(cwd, answered=self.display.opened)

    async def reopen(self, id: str, cwd: str) -> None:
        """Continue a session.

        The display gets the updates that the agent sends before its answer as history: those of
        `session/load`, the only choice for some agents.
        """
        agent = self.capabilities
        params: dict[str, Any] = {"sessionId": id, "cwd": cwd, "mcpServers": []}
        if agent.resume:
            self.step = "session/resume"
        elif agent.load:
            self.step = "session/load"
        else:
            raise RequestError(METHOD_NOT_FOUND, "the agent cannot continue sessions")
        self._is_replaying = True

        def answered(result: Any) -> None:
            self._is_replaying = False
            self.display.opened({"sessionId": id, **(result if isinstance(result, dict) else {})})

        await self.client.request(self.step, params, answered=answered)
        self.session = id

    async def prompt(self, blocks: Sequence[Mapping[str, Any]]) -> str:
        """Take one turn; return its stop reason."""
        assert self.session is not None
        self.step, self.in_turn, self.is_cancelling = "session/prompt", True, False
        self._idle, self._ending, self._prompt = trio.Event(), {}, object()
        self.permissions.new_turn()
        self.display.begin_turn()
        try:
            if self.client.protocol_version == 1:
                result: Mapping[str, Any] = await self.client.prompt(
                    self.session, blocks, answered=self.display.ended
                )
            else:
                self._turns.prompt_sent(self._prompt, trio.current_time())
                untouched = partial(self._turns.is_untouched, self._prompt)
                await self.client.prompt(
                    self.session, blocks, answered=self._begun, is_untouched=untouched
                )
                result = await self._wait_idle()
        finally:
            self._turns.prompt_answered(self._prompt, trio.current_time(), accepted=False)
            self.in_turn = self.is_cancelling = False
        return str(result.get("stopReason"))

    def cancel(self) -> None:
        """Cancel the running turn; the agent ends it."""
        assert self.session is not None
        self.is_cancelling = True
        self.permissions.cancel()
        self._turns.cancel(trio.current_time())
        self.client.cancel(self.session)

    def on_update(self, params: Any) -> None:
        """Handle `session/update`."""
        update = params.get("update") if isinstance(params, Mapping) else None
        if not isinstance(update, Mapping):
            return
        session = str(params.get("sessionId"))
        show = self.display.history if self._is_replaying else self.display.update
        try:
            show(session, update)
        except Exception as exc:  # of an agent that is not to be trusted: the session goes on
            self.display.note(f"an update cannot be shown: {type(exc).__name__}: {exc}")
        if self._is_replaying:
            return
        # That of `@on_session` comes before the answer to `session/new` is taken.
        if is_failure(update):
            self.failures.append(str(update["title"]))
        if session == self.session:
            self._end_with(self._turns.take(update, trio.current_time()))

    def _begun(self, result: Any) -> None:
        self._end_with(
            self._turns.prompt_answered(
                self._prompt, trio.current_time(), accepted=True, report=result
            )
        )

    def _end_with(self, ended: Ended[Any] | None) -> None:
        if ended is None or self._prompt not in ended.prompts:
            return
        self._ending = {"stopReason": ended.stop_reason or "end_turn"}
        if "error" in ended.report:
            self._ending["error"] = ended.report["error"]
        self.display.ended(self._ending)
        self._idle.set()

    async def _wait_idle(self) -> Mapping[str, Any]:
        async with background_tasks() as nursery:
            nursery.start_soon(self._watch_end)
            await self._idle.wait()
        if not self._ending:
            raise ConnectionClosed("session/prompt: the peer is gone")
        return self._ending

    async def _watch_end(self) -> None:
        await self.client.ended.wait()
        self._idle.set()


def declared_capabilities(answer: Mapping[str, Any], version: int) -> DeclaredCapabilities:
    """The capabilities in the result of `initialize`, in this version of the protocol."""
    if version == 1:
        agent = as_mapping(answer.get("agentCapabilities"))
        prompt = as_mapping(agent.get("promptCapabilities"))
        return DeclaredCapabilities(
            image=prompt.get("image") is True,
            embedded_context=prompt.get("embeddedContext") is True,
            load=agent.get("loadSession") is True,
            resume=as_mapping(agent.get("sessionCapabilities")).get("resume") is not None,
        )
    session = as_mapping(as_mapping(answer.get("capabilities")).get("session"))
    prompt = as_mapping(session.get("prompt"))
    return DeclaredCapabilities(
        image=prompt.get("image") is not None,
        embedded_context=prompt.get("embeddedContext") is not None,
        resume=True,  # required of agents
    )


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
