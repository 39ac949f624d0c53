"""One session with an agent, in both protocol versions: opened or continued, then turn after turn.

In version 1 the response to `session/prompt` ends a turn, in version 2 an update of the session's
state. Messages of the agent go to the display; `failed` of it tells what went wrong, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import trio

from conductor.acp.turns import Ended, SessionTurns, Turns
from conductor.background_tasks import background_tasks
from conductor.cli.prompt.display import Display
from conductor.cli.prompt.permissions import PermissionPrompt
from conductor.client.acp_client import ChainClient
from conductor.error_codes import METHOD_NOT_FOUND, PROTOCOL_VERSION
from conductor.errors import ConnectionClosed, RequestError
from conductor.routing.notices import is_failure

__all__ = ["Conversation", "DeclaredCapabilities", "declared_capabilities"]


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
        agent = _member(answer, "agentCapabilities")
        prompt = _member(agent, "promptCapabilities")
        return DeclaredCapabilities(
            image=prompt.get("image") is True,
            embedded_context=prompt.get("embeddedContext") is True,
            load=agent.get("loadSession") is True,
            resume=_member(agent, "sessionCapabilities").get("resume") is not None,
        )
    prompt = _member(_member(_member(answer, "capabilities"), "session"), "prompt")
    return DeclaredCapabilities(
        image=prompt.get("image") is not None,
        embedded_context=prompt.get("embeddedContext") is not None,
        resume=True,  # required of agents
    )


def _member(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}
