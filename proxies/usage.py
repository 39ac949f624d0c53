"""`usage`: answers the slash command `/usage` with the tokens and cost of the session.

Most clients do not show the context window, tokens and cost that agents report. The command does
not reach the agent and costs nothing.

Options:
    command  the slash command; default `usage`. If the agent has one of that name, this one
             is `acp:usage`
    tokens   whether the tokens that the agent reports at a turn's end are those of the `turn`
             (default) or of the `session` so far; agents differ
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs.validators import matches_re

from conductor.proxy import Forward, Proxy, on, per_session
from proxies._messages import opened_session, update_of_kind
from proxies._slash_commands import (
    AnnouncedCommands,
    SlashCommand,
    SlashCommands,
    answer,
    is_handled,
)
from proxies._usage_meter import CATEGORIES, Counting, UsageMeter

__all__ = ["Usage"]


@attrs.define
class _Session:
    meter: UsageMeter = attrs.field(factory=UsageMeter)
    announced: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)


@attrs.define
class Usage(Proxy):
    """Answer `/usage` with the session's tokens and cost."""

    on_error = "pass"

    command: str = attrs.field(default="usage", validator=matches_re(r"[\w:-]+"))
    tokens: Counting = "turn"
    _version: int = attrs.field(default=1, init=False)
    _commands: SlashCommands = attrs.field(init=False)

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        about = "Show the tokens and cost of this session"
        self._commands = SlashCommands(SlashCommand(self.command, about))

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        return self._commands.initialized(result)

    @on("session/new")
    @on("session/load")
    @on("session/resume")
    @on("session/fork")
    async def advertise(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        if self._version == 1 or result is None:
            return result
        session = self.sessions[opened_session(params, result)]
        return self._commands.announced(result, session.announced)

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        kinds = ("usage_update", "state_update", "available_commands_update")
        params = update_of_kind(raw, *kinds)
        if params is not None and params["update"]["sessionUpdate"] == "available_commands_update":
            announced = self.sessions[params["sessionId"]].announced
            update = self._commands.announced(params["update"], announced)
            await forward({**params, "update": update})
            return
        if params is not None and not is_handled(params["update"]):
            self._meter(params["sessionId"]).update(params["update"])
        await forward()

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        meter = self._meter(params["sessionId"])
        if self._commands.calls_own(params, self.sessions[params["sessionId"]].announced):
            return await answer(self.client, params, report(meter), version=self._version)
        result = await forward()
        if self._version == 1 and not is_handled(result):
            meter.turn(result)
        return result

    def _meter(self, session_id: str) -> UsageMeter:
        meter = self.sessions[session_id].meter
        meter.counting = self.tokens
        return meter


def report(meter: UsageMeter) -> str:
    """Return the sums of a meter as text for the user."""
    lines = []
    if meter.used is not None and meter.size:
        share = f"{100 * meter.used / meter.size:.0f} %"
        lines.append(f"Context: {meter.used:,} of {meter.size:,} tokens ({share})")
    if meter.tokens:
        parts = [
            f"{word} {meter.tokens[name]:,}"
            for name, word in CATEGORIES.items()
            if name in meter.tokens
        ]
        turns = f"{meter.turns} turn{'s' if meter.turns != 1 else ''}"
        total = f"{meter.tokens.get('totalTokens', 0):,}"
        lines.append(f"Tokens: {total} in {turns} ({', '.join(parts)})")
    for currency, amount in meter.cost.items():
        lines.append(f"Cost: {amount:.4f} {currency}")
    return "\n".join(lines) or "The agent has not reported any usage yet."
