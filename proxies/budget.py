"""`budget`: ends the spending when a session, or a day, has had enough.

When a part of a limit is used the user is told once. At the limit, further prompts are refused
without asking the agent, and a turn that runs into it is cancelled. What counts is what the agent
reports: one that reports nothing is limited by turns only.

Options:
    session, day  limits, each with `turns`, `tokens` and `cost`; what is left out is unlimited
    currency      of `cost`; default USD. What is reported in another one does not count.
    warn_at       the part of a limit at which the user is told; default 0.8
    tokens_are    whether the reported tokens are those of the `turn` (default) or of the `session`
    file          keeps the day's sums, for all chains that name it; without it a day ends with the
                  chain
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from attrs.validators import and_, ge, gt, le, optional

from conductor.proxy import Forward, Proxy, on, per_session
from proxies._commands import Announced, SlashCommands, answer, handled, say
from proxies._ledger import Ledger
from proxies._meter import Counting, Meter, Spent
from proxies._shapes import opened_session, update_of_kind

__all__ = ["Budget", "Limits"]


@attrs.frozen
class Limits:
    """How much may be spent."""

    turns: int | None = attrs.field(default=None, validator=optional(ge(0)))
    tokens: int | None = attrs.field(default=None, validator=optional(ge(0)))
    cost: float | None = attrs.field(default=None, validator=optional(ge(0)))

    def reached(self, sums: dict[str, float], part: float = 1.0) -> str | None:
        """The first limit of which this part is used, as `3 of 5 turns`."""
        for name, limit in attrs.asdict(self).items():
            if limit is not None and sums.get(name, 0) >= part * limit:
                return f"{_shown(sums.get(name, 0))} of {_shown(limit)} {name}"
        return None


@attrs.define
class _Session:
    meter: Meter = attrs.field(factory=Meter)
    sums: dict[str, float] = attrs.field(factory=dict)
    warned: set[str] = attrs.field(factory=set)
    running: bool = False
    announced: Announced = attrs.field(factory=Announced)


@attrs.define
class Budget(Proxy):
    """Limit what sessions and days may cost."""

    session: Limits = attrs.field(factory=Limits)
    day: Limits = attrs.field(factory=Limits)
    currency: str = "USD"
    warn_at: float = attrs.field(default=0.8, validator=and_(gt(0), le(1)))
    tokens_are: Counting = "turn"
    file: Path | None = None
    _version: int = attrs.field(default=1, init=False)
    _ledger: Ledger = attrs.field(init=False)
    _commands: SlashCommands = attrs.field(factory=SlashCommands, init=False)

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        if Limits() == self.session == self.day:
            raise ValueError("there are no limits: give `session` or `day`")
        self._ledger = Ledger(self.file)

    @on("initialize")
    async def initialize(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        self._version = result.get("protocolVersion", 1)
        return self._commands.initialized(result)

    @on("session/new")
    @on("session/fork")
    async def open_session(self, params: dict[str, Any], forward: Forward) -> Any:
        return self._opened(params, await forward())

    @on("session/load")
    @on("session/resume")
    async def reopen(self, params: dict[str, Any], forward: Forward) -> Any:
        if params["sessionId"] not in self.sessions:
            self.sessions[params["sessionId"]].meter.restored = True
        return self._opened(params, await forward())

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        id = params["sessionId"]
        if self._commands.calls_other(params, self.sessions[id].announced):
            return await forward()
        over = self._reached(id, 1.0)
        if over is not None:
            text = f"Refused: the budget is used up ({over})."
            return await answer(
                self.client, params, text, version=self._version, stop_reason="refusal"
            )
        session = self._session(id)
        session.running = True
        try:
            result = await forward()
        finally:
            session.running = self._version > 1
        if self._version == 1:
            self._spend(session, session.meter.turn(result))
            await self._warn(id)
        return result

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        await forward()
        params = update_of_kind(raw, "usage_update", "state_update", "available_commands_update")
        if params is None or handled(params["update"]):
            return
        id = params["sessionId"]
        session = self._session(id)
        if params["update"]["sessionUpdate"] == "available_commands_update":
            session.announced.read(params["update"])
            return
        spent = session.meter.update(params["update"])
        self._spend(session, spent)
        if spent.turns:
            session.running = False
        if session.running and (over := self._reached(id, 1.0)) is not None:
            session.running = False
            session.warned.add(_limit(over))
            await self.agent.cancel(id)
            await say(
                self.client,
                id,
                f"Cancelled: the budget is used up ({over}).\n",
                version=self._version,
            )
        elif spent != Spent():
            await self._warn(id)

    # ----------------------------------------------------------------------------------------------

    def _opened(self, params: dict[str, Any], result: Any) -> Any:
        if self._version > 1 and result is not None:
            self.sessions[opened_session(params, result)].announced.read(result)
        return result

    def _session(self, id: str) -> _Session:
        session = self.sessions[id]
        session.meter.counting = self.tokens_are
        return session

    def _spend(self, session: _Session, spent: Spent) -> None:
        amounts: dict[str, float] = {
            "turns": spent.turns,
            "tokens": spent.tokens,
            "cost": spent.cost.get(self.currency, 0.0),
        }
        amounts = {name: amount for name, amount in amounts.items() if amount}
        for name, amount in amounts.items():
            session.sums[name] = session.sums.get(name, 0) + amount
        if amounts and self.day != Limits():
            self._ledger.add(amounts)

    def _reached(self, id: str, part: float) -> str | None:
        of_session = self.session.reached(self.sessions[id].sums, part)
        if of_session is not None:
            return f"{of_session} in this session"
        if self.day == Limits():
            return None
        of_day = self.day.reached(self._ledger.add({}), part)
        return None if of_day is None else f"{of_day} today"

    async def _warn(self, id: str) -> None:
        """Tell once per limit."""
        near, session = self._reached(id, self.warn_at), self._session(id)
        if near is not None and _limit(near) not in session.warned:
            session.warned.add(_limit(near))
            await say(self.client, id, f"\nBudget: {near} are used.\n", version=self._version)


def _limit(reached: str) -> str:
    """Which limit a text like `3 of 5 turns today` is about."""
    return reached.partition(" of ")[2]


def _shown(amount: float) -> str:
    return f"{amount:,.4f}".rstrip("0").rstrip(".")
