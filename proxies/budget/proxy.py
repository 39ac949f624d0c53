"""`budget`: limits turns, tokens and cost per session and per day.

The user is warned once per limit. At the limit, prompts are refused without reaching the agent, and
a running turn is cancelled. A turn is counted before its prompt is forwarded, and refunded if the
agent responds with an error. Tokens and cost are counted when the agent reports them, so concurrent
turns may together exceed a limit by what they use; an agent that reports nothing is limited by
turns only. Tokens and cost that subagents report for sessions of their own are those of the user's
session. Sessions that were neither opened nor announced share one budget of a session, and what
they spend counts for every open session, too: it is not known which of them it belongs to.

Options:
    session, day  limits, each with `turns`, `tokens` and `cost`; an absent one is unlimited
    currency      of `cost`; default USD. Costs in other currencies do not count.
    warn_at       the fraction of a limit at which the user is warned; default 0.8
    tokens_are    whether the reported tokens are those of the `turn` (default) or of the `session`
    file          keeps the day's sums for all chains that name it; without it, they end with the
                  chain. If it cannot be read or written, prompts are refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
from attrs.validators import and_, ge, gt, le, optional

from conductor.acp.sessions import Counting, UsageDelta, UsageMeter
from conductor.bounded_dict import BoundedDict
from conductor.errors import details_are_withheld
from conductor.proxy import (
    Forward,
    Placement,
    Prompt,
    Proxy,
    Session,
    TurnEnd,
    get_logger,
    on_prompt,
    on_session_end,
    on_turn_end,
    on_update,
    per_session,
)
from proxies.budget.ledger import Ledger, LedgerError, Sums

__all__ = ["Budget", "BudgetLimits"]


_ALL: Final = ("turns", "tokens", "cost")
_IN_A_TURN: Final = ("tokens", "cost")
"""Quantities that can reach their limit during a turn."""
_SESSION: Final = "in this session"
_MAX_CLOSED: Final = 10_000

log = get_logger(component="budget")


@attrs.frozen
class UsedLimit:
    """One limit, and how much of it is used."""

    name: str
    used: float
    limit: float
    where: str
    """"in this session" or "today"."""
    currency: str

    @property
    def key(self) -> tuple[str, str]:
        """The limit, without what is used of it."""
        return self.name, self.where

    def __str__(self) -> str:
        used, limit = _shown(self.used), _shown(self.limit)
        unit = self.currency if self.name == "cost" else self.name
        if self.used > self.limit:
            return f"{used} {unit} used {self.where}; the limit is {limit}"
        return f"{used} of {limit} {unit} used {self.where}"


@attrs.frozen
class BudgetLimits:
    """Limits on one session, or on one day."""

    turns: int | None = attrs.field(default=None, validator=optional(ge(0)))
    """Number of prompts."""
    tokens: int | None = attrs.field(default=None, validator=optional(ge(0)))
    """Number of tokens, as the agent reports them."""
    cost: float | None = attrs.field(default=None, validator=optional(ge(0)))
    """Cost, in `currency`."""


@attrs.define
class _Spending:
    meter: UsageMeter
    cancelled: set[str] = attrs.field(factory=set)
    """The session and those of its subagents, if cancelled since the last prompt."""
    sums: dict[str, float] = attrs.field(factory=dict)
    warned: set[tuple[str, str]] = attrs.field(factory=set)
    running: bool = False
    reserved: int = 0
    """Turns in `sums` that have not ended."""

    def add(self, amounts: Mapping[str, float]) -> None:
        for name, amount in amounts.items():
            self.sums[name] = self.sums.get(name, 0) + amount


@attrs.define
class Budget(Proxy):
    """Limit turns, tokens and cost per session and per day."""

    session: BudgetLimits = attrs.field(factory=BudgetLimits)
    day: BudgetLimits = attrs.field(factory=BudgetLimits)
    currency: str = "USD"
    warn_at: float = attrs.field(default=0.8, validator=and_(gt(0), le(1)))
    tokens_are: Counting = "turn"
    file: Path | None = None
    _ledger: Ledger = attrs.field(init=False)
    _closed: BoundedDict[str, _Spending] = attrs.field(
        factory=lambda: BoundedDict(_MAX_CLOSED), init=False
    )
    """Closed sessions; one that is reopened keeps its sums."""
    _unplaced: _Spending = attrs.field(init=False)
    """Shared by all sessions without a known session of the user."""

    def __attrs_post_init__(self) -> None:
        if BudgetLimits() == self.session == self.day:
            raise ValueError("there are no limits: give `session` or `day`")
        self._ledger = Ledger(self.file)
        self._unplaced = _Spending(UsageMeter(self.tokens_are))

    @per_session
    def states(self) -> _Spending:
        return _Spending(UsageMeter(self.tokens_are))

    @per_session
    def meters(self) -> UsageMeter:
        """Usage of sessions other than the user's."""
        return UsageMeter(self.tokens_are)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Write unwritten amounts before the chain ends."""
        yield
        self._keep(lambda: self._ledger.add({}))

    def placement(self) -> Placement:
        return Placement(before={"opens_agents": "turns of the agents that it opens do not count"})

    @on_session_end
    async def session_ended(self, session: Session) -> None:
        if session.is_placed:
            self._closed[session.id] = self._state(session.user_session)

    @on_prompt
    async def prompt(self, session: Session, prompt: Prompt, forward: Forward) -> Any:
        states, today = [each for _, each in self._payers(session)], self._ledger.today()
        state = states[0]
        refused = self._reserve(states)
        if refused is not None:
            return await prompt.answer(f"Refused: {refused}.", stop_reason="refusal")
        state.running, is_counted = True, False
        state.cancelled.clear()
        try:
            result = await forward()
            is_counted = not prompt.answered_by_proxy
            return result
        finally:
            if not is_counted:
                self._refund(states, today)
            state.running = state.reserved > 0

    @on_turn_end
    async def turn_ended(self, session: Session, end: TurnEnd) -> None:
        if end.error is None or end.usage:
            user, state = self._payers(session)[0]
            spent = self._meter(session).turn(end.usage)
            if session is not user:
                await self._count(session, attrs.evolve(spent, turns=0))
                return
            if not session.is_placed:
                spent = attrs.evolve(spent, turns=0)
            if state.reserved:  # counted before it began; a turn without a prompt is counted now
                spent = attrs.evolve(spent, turns=0)
                state.reserved = state.reserved - 1 if session.protocol_version == 1 else 0
            state.running = session.protocol_version == 1 and state.reserved > 0
            await self._count(session, spent)

    @on_update("usage_update")
    async def usage(self, session: Session, update: dict[str, Any], forward: Forward) -> None:
        await forward()
        spent = self._meter(session).update(update)
        if spent != UsageDelta():
            await self._count(session, spent)

    # ----------------------------------------------------------------------------------------------

    def _reserve(self, states: Sequence[_Spending]) -> str | None:
        """Reserve a turn of a session and of the day; returns the reason if a limit is reached."""
        for state in states:
            if (over := self._over(_SESSION, self.session, state.sums)) is not None:
                return over
        if self.day != BudgetLimits() and (refused := self._reserve_day()) is not None:
            return refused
        for state in states:
            state.add({"turns": 1})
        states[0].reserved += 1
        return None

    def _reserve_day(self) -> str | None:
        try:
            return self._ledger.reserve({"turns": 1}, partial(self._over, "today", self.day))
        except LedgerError as exc:
            log.warning("budget not known", file=str(self.file), reason=exc.reason)
            file = "its file" if details_are_withheld() else self.file
            return f"the budget of the day is not known: {file} {exc.reason}"

    def _refund(self, states: Sequence[_Spending], day: str) -> None:
        if states[0].reserved:
            states[0].reserved -= 1
            for state in states:
                state.add({"turns": -1})
            if self.day != BudgetLimits():
                self._keep(lambda: self._ledger.refund({"turns": 1}, day))

    def _payers(self, session: Session) -> list[tuple[Session, _Spending]]:
        """The sessions that a session's spending counts for: the user's session above it. If that
        is not known, the shared state of such sessions, and every open session of the user."""
        if session.is_placed:
            user = session.user_session
            return [(user, self._state(user))]
        if (closed := self._closed.get(session.id)) is not None:
            return [(session, closed)]
        opened = [each for each in map(self.session_by_id, list(self.states)) if each.opened_by]
        return [(session, self._unplaced), *((each, self.states[each.id]) for each in opened)]

    def _meter(self, session: Session) -> UsageMeter:
        user, state = self._payers(session)[0]
        is_users = session is user and state is not self._unplaced
        return state.meter if is_users else self.meters[session.id]

    def _state(self, session: Session) -> _Spending:
        """The state of a user's session."""
        if session.id not in self.states and session.opened_by in ("load", "resume"):
            if session.id in self._closed:
                self.states[session.id] = self._closed.pop(session.id)
            else:
                self.states[session.id].meter.restored = True
        return self.states[session.id]

    async def _count(self, session: Session, spent: UsageDelta) -> None:
        """Add what a session has spent; cancel its turn at a limit, warn before."""
        payers = self._payers(session)
        self._spend([state for _, state in payers], spent)
        for user, state in payers:
            await self._check(session, user, state)

    async def _check(self, session: Session, user: Session, state: _Spending) -> None:
        running = {user.id} if state.running else set[str]()
        if session is not user and session.is_running:
            running.add(session.id)
        running -= state.cancelled
        over = self._reached(state, 1.0, _IN_A_TURN) if running else []
        if not over:
            await self._warn(user, state)
            return
        state.running = False
        state.warned |= {each.key for each in over}
        state.cancelled |= running
        for id in sorted(running):
            await self.agent.cancel(id)
        if user.is_placed:
            await user.notice("Cancelled: the budget is used up", str(over[0]), severity="warning")

    def _spend(self, states: Sequence[_Spending], spent: UsageDelta) -> None:
        amounts: dict[str, float] = {
            "turns": spent.turns,
            "tokens": spent.tokens,
            "cost": spent.cost.get(self.currency, 0.0),
        }
        amounts = {name: amount for name, amount in amounts.items() if amount}
        for state in states:
            state.add(amounts)
        if amounts and self.day != BudgetLimits():
            self._keep(lambda: self._ledger.add(amounts))

    def _keep(self, change: Callable[[], None]) -> None:
        """Change the ledger. Amounts that cannot be written are written at the next prompt, which
        is refused if that fails."""
        try:
            change()
        except LedgerError as exc:
            log.warning("budget not written", reason=str(exc))

    def _reached(
        self, state: _Spending, part: float, names: Sequence[str] = _ALL
    ) -> list[UsedLimit]:
        sums = {} if self.day == BudgetLimits() else self._ledger.sums()
        return [
            *self._used(_SESSION, self.session, state.sums, part, names),
            *self._used("today", self.day, sums, part, names),
        ]

    def _over(self, where: str, limits: BudgetLimits, sums: Sums) -> str | None:
        """Why a prompt is refused, or `None`."""
        over = self._used(where, limits, sums)
        return f"the budget is used up ({over[0]})" if over else None

    def _used(
        self,
        where: str,
        limits: BudgetLimits,
        sums: Sums,
        part: float = 1.0,
        names: Sequence[str] = _ALL,
    ) -> list[UsedLimit]:
        """The limits that are used up to this fraction."""
        amounts = ((name, sums.get(name, 0), getattr(limits, name)) for name in names)
        return [
            UsedLimit(name, used, limit, where, self.currency)
            for name, used, limit in amounts
            if limit is not None and used >= part * limit
        ]

    async def _warn(self, session: Session, state: _Spending) -> None:
        """Warn the user, once per limit."""
        if not session.is_placed:
            return
        for near in self._reached(state, self.warn_at, _IN_A_TURN if state.running else _ALL):
            if near.key not in state.warned:
                state.warned.add(near.key)
                is_used_up = near.used >= near.limit
                title = "The budget is used up" if is_used_up else "Little of the budget is left"
                await session.notice(title, str(near))


def _shown(amount: float) -> str:
    return f"{amount:,.4f}".rstrip("0").rstrip(".")
