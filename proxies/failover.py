"""`failover`: sends a prompt that the agent cannot answer now to another agent.

If the agent answers a prompt with an error, or reports a failure, that says rate limit, overload or
login required, before any output of the turn but the text of the error, the next agent of the list
gets the prompt. An agent of the list that does
not run counts as failed. A text tells the user which agent answers, and why.

Options:
    agents      the other agents, in order; each has `run` (an argv) or `chain` (a chain file), and
                optionally `name` and, with `run`, `env`
    cooldown    time for which an agent that failed is not asked, in any session, if it does not say
                when its limit ends; default 10m. If all agents are cooling down, they are asked in
                order until one answers
    transcript  maximum characters of the conversation that are put before the prompt of an agent
                that has not seen it; default 40000

Another agent runs for one turn, in the directory and with the MCP servers of the session; its
permission requests and file requests go to the client. The first agent gets the turns that it has
missed before its next prompt. An error in the text of an answer alone is not recognized, nor is one
after the first output. In protocol version 2 the answer of another agent is shown as a whole, at
its end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, get_args

import attrs
import trio
from attrs.validators import ge, gt, min_len

from conductor.error_codes import INTERNAL_ERROR
from conductor.errors import (
    ChainFileError,
    ComponentError,
    ConnectionClosed,
    RemoteProtocolError,
    details_are_withheld,
)
from conductor.proxy import (
    Forward,
    Placement,
    Prompt,
    Proxy,
    RequestError,
    Session,
    get_logger,
    on_prompt,
    on_update,
    per_session,
)
from conductor.proxy.commands import program_warning
from conductor.proxy.text_streams import chunk_text
from proxies.shared.agent_failures import failure_reason, limit_end, reported_failure
from proxies.shared.transcript import BoundedTranscript

__all__ = ["Failover", "OtherAgent"]

_OUTPUT = (
    *("agent_message_chunk", "agent_thought_chunk", "agent_message", "plan"),
    *("tool_call", "tool_call_update"),
)
_MAX_ERROR = 2000
"""Characters of the text of a turn that are compared with its error."""
_MAX_LINE = 200
"""Characters of an error in other words: claude shows "Invalid API key" and answers "Authentication
required"."""
_WARNING = "Warning: "
"""Begins what codex-acp says of its settings, and of a limit that is near, as a message."""
_MAX_PAUSE = 40 * 86400
"""Seconds; later ends of a limit are not believed."""
_NotRunning: TypeAlias = ChainFileError | ComponentError | ConnectionClosed | RemoteProtocolError
_NOT_RUNNING = get_args(_NotRunning)

log = get_logger(component="failover")


@attrs.define
class OtherAgent:
    """An entry of `agents`."""

    run: list[str] | None = None
    """The command of an agent."""
    chain: Path | None = None
    """In place of `run`: a chain file."""
    name: str = ""
    """The name that the user sees; without it, that of the program or file."""
    env: dict[str, str] = attrs.field(factory=dict)
    """Environment variables for `run`."""

    def __attrs_post_init__(self) -> None:
        if (self.run is None) == (self.chain is None) or self.run == []:
            raise ValueError("give either `run` (an argv) or `chain` (a chain file)")
        if self.chain is not None and self.env:
            raise ValueError("`env` is for `run`; a chain file has `env:` for each component")
        self.name = self.name or (self.chain.stem if self.chain else Path(self.run[0]).name)  # type: ignore[index]

    def problem(self) -> str | None:
        """Why it cannot start, as far as `check` can see."""
        if self.chain is not None:
            return None if self.chain.is_file() else f"there is no file {self.chain}"
        return program_warning(self.run or (), self.env)


@attrs.define
class _SessionTranscripts:
    seen: BoundedTranscript
    """The whole conversation."""
    missed: BoundedTranscript
    """The turns that the first agent has not seen."""
    unanswered: str = ""
    """The text of the running prompt, until there is output."""
    has_output: bool = False
    output_text: str = ""
    """The text of the running turn; empty if it has other output, too."""
    is_running: bool = False

    def add_output(self, update: dict[str, Any], transcripts: list[BoundedTranscript]) -> None:
        """Record output of the running turn, after the prompt that it answers."""
        text = chunk_text(update) if update.get("sessionUpdate") == "agent_message_chunk" else None
        is_text = text is not None and (self.output_text != "" or not self.has_output)
        self.output_text = (self.output_text + (text or ""))[:_MAX_ERROR] if is_text else ""
        self.has_output = True
        for transcript in transcripts:
            transcript.add("user", self.unanswered)
            if update.get("sessionUpdate") == "agent_message_chunk":
                transcript.add("agent", chunk_text(update) or "")
        self.unanswered = ""

    def has_more_than(self, error: Exception) -> bool:
        """Whether the turn has other output than the text of its error, which codex-acp and
        claude-agent-acp also show as a message."""
        if not self.output_text or not isinstance(error, RequestError):
            return self.has_output
        parts = self.output_text.split("\n\n")
        text = "\n\n".join(each for each in parts if not each.startswith(_WARNING)).strip()
        if text in f"{error.message} {error.data}":
            return False
        reason = failure_reason(RequestError(INTERNAL_ERROR, text))
        return len(text) > _MAX_LINE or reason != failure_reason(error)

    def forget_output(self) -> None:
        """The output was an error: the next agent's is the first of the turn."""
        self.has_output, self.output_text = False, ""


@attrs.define
class Failover(Proxy):
    """Send prompts to another agent while the first one is limited, overloaded or logged out."""

    agents: list[OtherAgent] = attrs.field(validator=min_len(1))
    cooldown: timedelta = attrs.field(default=timedelta(minutes=10), validator=ge(timedelta()))
    transcript: int = attrs.field(default=40_000, validator=gt(0))
    _cool_until: dict[int, float] = attrs.field(factory=dict, init=False)
    """By position in the list of all agents: 0 is the agent of the chain."""

    @per_session
    def conversations(self) -> _SessionTranscripts:
        return _SessionTranscripts(
            BoundedTranscript(self.transcript), BoundedTranscript(self.transcript)
        )

    def option_warnings(self) -> Sequence[tuple[str, str]]:
        return [
            ("agents", f"{each.name}: {why}") for each in self.agents if (why := each.problem())
        ]

    def placement(self) -> Placement:
        return Placement(effects={"opens_agents"})

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        conversation = self.conversations[session.id]
        conversation.unanswered, conversation.has_output = prompt.text, False
        conversation.output_text = ""
        failures: list[str] = []
        if not session.is_running:
            session.cancelled = False  # of an earlier turn, which may have been another agent's
        for position in self._candidates():
            if failures and session.cancelled:
                return await prompt.answer("", stop_reason="cancelled")
            try:
                if position == 0:
                    result = await self._ask_first(conversation, prompt, forward)
                    failure = reported_failure(result)
                    if failure is None or failure_reason(failure) is None:
                        return result
                    if conversation.has_more_than(failure):
                        return result
                    raise failure
                return await self._ask_other(position, session, conversation, prompt, failures)
            except (RequestError, *_NOT_RUNNING) as exc:
                reason = failure_reason(exc) if isinstance(exc, RequestError) else "does not run"
                if reason is None or conversation.has_more_than(exc):
                    raise
                conversation.forget_output()
                self._cool_until[position] = trio.current_time() + self._pause(exc)
                name = self._name(position, session)
                log.warning("agent cannot answer", agent=name, why=reason, error=str(exc))
                failures.append(f"{name}: {reason} ({_first_line(exc)})")
        raise RequestError(INTERNAL_ERROR, f"No agent can answer. {'; '.join(failures)}")

    @on_update(*_OUTPUT, "user_message_chunk")
    async def update(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        conversation = self.conversations[session.id]
        if update["sessionUpdate"] != "user_message_chunk":
            conversation.add_output(update, [conversation.seen])
        elif not conversation.is_running:  # a replay; in a turn it repeats the prompt
            conversation.seen.add("user", chunk_text(update) or "")
        await forward()

    # ----------------------------------------------------------------------------------------------

    def _candidates(self) -> Sequence[int]:
        """Positions of the agents to ask: those that are not cooling down, or else all."""
        now, every = trio.current_time(), range(len(self.agents) + 1)
        ready = [each for each in every if self._cool_until.get(each, now) <= now]
        return ready or every

    def _pause(self, failure: Exception) -> float:
        """Seconds for which an agent is not asked."""
        now = time.time()
        end = limit_end(failure, now) if isinstance(failure, RequestError) else None
        if end is None or not now < end < now + _MAX_PAUSE:
            return self.cooldown.total_seconds()
        return end - now

    def _name(self, position: int, session: Session) -> str:
        if position:
            return self.agents[position - 1].name
        info = session.agent_info
        return str(info.get("title") or info.get("name") or "the agent")

    async def _ask_first(
        self, conversation: _SessionTranscripts, prompt: Prompt, forward: Forward
    ) -> Any:
        given, missed = list(prompt.blocks), _told(conversation.missed)
        is_told = not missed or prompt.prepend(missed)
        conversation.is_running = True
        try:
            result = await forward()
        finally:
            conversation.is_running = False
            prompt.blocks[:] = given
        conversation.seen.add("user", conversation.unanswered)
        conversation.unanswered = ""
        if is_told:
            conversation.missed.clear()
        return result

    async def _ask_other(
        self,
        position: int,
        session: Session,
        conversation: _SessionTranscripts,
        prompt: Prompt,
        failures: list[str],
    ) -> Any:
        agent = self.agents[position - 1]
        why = "; ".join(failures) or f"{self._name(0, session)} is not asked again yet"
        title = f"{agent.name} answers instead"
        streams = session.protocol_version == 1
        transcripts = [conversation.seen, conversation.missed]

        async def show(update: dict[str, Any]) -> None:
            if update.get("sessionUpdate") not in _OUTPUT:
                return  # state of its session, which the client does not know
            if streams and not conversation.has_output:
                await session.notice(title, why, severity="warning")
            conversation.add_output(update, transcripts)
            if streams:
                await self.client.update(session.id, update)

        source = agent.run or agent.chain
        assert source is not None
        async with self.open_agent(source, like=session, name=agent.name, env=agent.env) as other:
            given, seen = list(prompt.blocks), _told(conversation.seen)
            if seen:
                prompt.prepend(seen)
            blocks, prompt.blocks = prompt.blocks, given
            turn = await other.prompt(blocks, show)
        if not streams or not conversation.has_output:
            await session.notice(title, why, severity="warning")
        conversation.add_output({}, transcripts)  # for a turn without output
        if streams:
            usage = {"usage": turn.result["usage"]} if "usage" in turn.result else {}
            return {"stopReason": turn.stop_reason, **usage}
        return await prompt.answer(turn.text, stop_reason=turn.stop_reason, counts=True)


def _told(transcript: BoundedTranscript) -> str:
    """The text with a transcript for an agent; empty if the transcript is."""
    if not (said := str(transcript)):
        return ""
    opening = "Another agent was asked before you. This is the conversation so far:"
    return f"{opening}\n\n<transcript>\n{said}\n</transcript>"


def _first_line(exc: RequestError | _NotRunning) -> str:
    """Text for the user; for a remote one without commands and files of this machine."""
    if isinstance(exc, RequestError):
        message = exc.message
    elif details_are_withheld():
        message, _ = exc.public_details()
    else:
        message = str(exc)
    return next(iter(message.splitlines()), "")[:200]
