"""`usage`: answers the slash command `/usage` with the tokens and cost of the session; `/acp:usage`
if the agent has a command of that name.

Most clients do not show the context window, tokens and cost that agents report. The command does
not reach the agent and costs nothing. Reports of subagents for sessions of their own are included.

Options:
    tokens  whether the tokens that the agent reports at a turn's end are those of the `turn`
            (default) or of the `session` so far; agents differ
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from conductor.acp.sessions import TOKEN_CATEGORIES, Counting, UsageMeter
from conductor.proxy import (
    Forward,
    Proxy,
    Session,
    TurnEnd,
    on_turn_end,
    on_update,
    per_session,
    slash,
)

__all__ = ["Usage"]

_MOST_SUBAGENTS: Final = 1000
"""Maximum counted for a session of the user."""


@attrs.define
class Usage(Proxy):
    """Answer `/usage` with the session's tokens and cost."""

    on_error = "pass"

    tokens: Counting = "turn"

    @per_session
    def meters(self) -> UsageMeter:
        return UsageMeter(self.tokens)

    @per_session
    def subagents(self) -> dict[str, UsageMeter]:
        """Meters of the subagents of a session of the user, by the subagent's session."""
        return {}

    @on_update("usage_update")
    async def update(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        self._meter(session).update(update)
        await forward()

    @on_turn_end
    async def turn(self, session: Session, end: TurnEnd) -> None:
        if end.error is None or end.usage:
            self._meter(session).turn(end.usage)

    @slash("usage", "Show the tokens and cost of this session")
    async def show(self, session: Session, arguments: str) -> str:
        return report(self.meters[session.id], list(self.subagents[session.id].values()))

    def _meter(self, session: Session) -> UsageMeter:
        user = session.user_session
        if user.id == session.id:
            return self.meters[user.id]
        meters = self.subagents[user.id]
        if session.id in meters or len(meters) < _MOST_SUBAGENTS:
            return meters.setdefault(session.id, UsageMeter(self.tokens))
        return UsageMeter(self.tokens)  # not counted


def report(meter: UsageMeter, subagents: Sequence[UsageMeter] = ()) -> str:
    """Return the sums of a session and its subagents as text for the user."""
    meter = _sum(meter, subagents)
    lines = []
    if meter.used is not None and meter.size:
        share = f"{100 * meter.used / meter.size:.0f} %"
        lines.append(f"Context: {meter.used:,} of {meter.size:,} tokens ({share})")
    if meter.tokens:
        parts = [
            f"{word} {meter.tokens[name]:,}"
            for name, word in TOKEN_CATEGORIES.items()
            if name in meter.tokens
        ]
        turns = f"{meter.turns} turn{'s' if meter.turns != 1 else ''}"
        total = f"{meter.tokens.get('totalTokens', 0):,}"
        lines.append(f"Tokens: {total} in {turns} ({', '.join(parts)})")
    for currency, amount in meter.cost.items():
        lines.append(f"Cost: {amount:.4f} {currency}")
    return "\n".join(lines) or "The agent has not reported any usage yet."


def _sum(meter: UsageMeter, subagents: Sequence[UsageMeter]) -> UsageMeter:
    """The turns and the context of a session, with the tokens and the cost of its subagents."""
    tokens, cost = dict(meter.tokens), dict(meter.cost)
    for each in subagents:
        for name, count in each.tokens.items():
            tokens[name] = tokens.get(name, 0) + count
        for currency, amount in each.cost.items():
            cost[currency] = cost.get(currency, 0.0) + amount
    return attrs.evolve(meter, tokens=tokens, cost=cost)
