"""Usage of a session, from its `usage_update`s and the ends of its turns. Pure.

Agents report the context and the cost as the state of the session (`usage_update`), and tokens at a
turn's end: in the response to the prompt (version 1) or in the idle state update (version 2). The
specification has not settled whether tokens are those of the turn or of the session so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = ["TOKEN_CATEGORIES", "Counting", "UsageDelta", "UsageMeter"]

Counting: TypeAlias = Literal["turn", "session"]
"""Scope of the tokens reported at the end of a turn: that turn, or the session so far."""

TOKEN_CATEGORIES: Final[Mapping[str, str]] = {
    "inputTokens": "input",
    "outputTokens": "output",
    "thoughtTokens": "thought",
    "cachedReadTokens": "cache read",
    "cachedWriteTokens": "cache write",
}
"""The categories of tokens on the wire, with words for them."""
_TOTAL: Final = "totalTokens"
_MAX_TOKENS: Final = 10**12
"""Upper bound for a reported number such as 1e999: sums stay representable in JSON."""


@attrs.frozen
class UsageDelta:
    """Usage added by one message."""

    turns: int = 0
    tokens: int = 0
    cost: Mapping[str, float] = attrs.field(factory=dict)
    """By currency."""


@attrs.define
class UsageMeter:
    """Sums of one session."""

    counting: Counting = "turn"
    restored: bool = False
    """Whether the session was loaded: the usage in its first report was spent earlier."""
    turns: int = 0
    tokens: dict[str, int] = attrs.field(factory=dict)
    """By the wire's name of the category, and the total."""
    cost: dict[str, float] = attrs.field(factory=dict)
    used: int | None = None
    size: int | None = None
    """Size of the context window; `used` are the tokens in it."""

    def update(self, update: Mapping[str, Any]) -> UsageDelta:
        """Read a `usage_update`; return the usage that it adds."""
        if update.get("sessionUpdate") != "usage_update":
            return UsageDelta()
        self.used, self.size = update.get("used"), update.get("size")
        return UsageDelta(cost=self._cost(update.get("cost")))

    def turn(self, usage: Mapping[str, Any] | None) -> UsageDelta:
        """Add a turn with the tokens that the agent reported at its end (`TurnEnd.usage`)."""
        self.turns += 1
        before = self.tokens.get(_TOTAL, 0)
        for name in (*TOKEN_CATEGORIES, _TOTAL):
            if isinstance(count := (usage or {}).get(name), int):
                count = min(max(count, 0), _MAX_TOKENS)
                add = self.counting == "turn"
                self.tokens[name] = self.tokens.get(name, 0) + count if add else count
        now = self.tokens.get(_TOTAL, 0)
        first, self.restored = self.restored and self.counting == "session", False
        return UsageDelta(turns=1, tokens=0 if first else max(0, now - before))

    def _cost(self, cost: Any) -> dict[str, float]:
        if not isinstance(cost, dict) or not isinstance(cost.get("amount"), int | float):
            return {}
        currency, amount = str(cost.get("currency", "?")), cost["amount"]
        amount = float(min(max(amount, 0), _MAX_TOKENS))
        before = self.cost.get(currency, amount if self.restored else 0.0)
        self.cost[currency] = amount
        return {currency: max(0.0, amount - before)}
