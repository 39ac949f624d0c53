"""Usage of a session, from its updates and responses. Pure.

Agents report the context and the cost as the state of the session (`usage_update`), and tokens at a
turn's end: in the response to the prompt (version 1) or in the idle state update (version 2). The
specification has not settled whether tokens are those of the turn or of the session so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = ["CATEGORIES", "Counting", "UsageDelta", "UsageMeter"]

Counting: TypeAlias = Literal["turn", "session"]

CATEGORIES: Final[Mapping[str, str]] = {
    "inputTokens": "input",
    "outputTokens": "output",
    "thoughtTokens": "thought",
    "cachedReadTokens": "cache read",
    "cachedWriteTokens": "cache write",
}
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
    _running: bool = attrs.field(default=False, init=False)

    def update(self, update: Mapping[str, Any]) -> UsageDelta:
        """Read a session update; return the usage that it adds."""
        match update.get("sessionUpdate"):
            case "usage_update":
                self.used, self.size = update.get("used"), update.get("size")
                return UsageDelta(cost=self._cost(update.get("cost")))
            case "state_update" if update.get("state") == "running":
                self._running = True
            case "state_update" if update.get("state") == "idle" and self._running:
                self._running = False  # a repeated idle update is not another turn
                return self.turn(update)
        return UsageDelta()

    def turn(self, answer: Mapping[str, Any]) -> UsageDelta:
        """Read the end of a turn; `answer` may contain its usage."""
        self.turns += 1
        before = self.tokens.get(_TOTAL, 0)
        usage = answer.get("usage") or {}
        for name in (*CATEGORIES, _TOTAL):
            if isinstance(count := usage.get(name), int):
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
