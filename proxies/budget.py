"""`budget`: limits turns, tokens and cost per session and per day.

The user is warned once per limit. At the limit, prompts are refused without reaching the agent, and
a running turn is cancelled. A turn is counted before its prompt is forwarded, and refunded if the
agent responds with an error. Tokens and cost are counted when the agent reports them, so concurrent
turns may together exceed a limit by what they use; an agent that reports nothing is limited by
turns only.

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
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from attrs.validators import and_, ge, gt, le, optional

from conductor.log import get_logger
from conductor.proxy import Forward, Proxy, on, per_session
from proxies._ledger import Ledger, LedgerError
from proxies._messages import opened_session, update_of_kind
from proxies._slash_commands import AnnouncedCommands, SlashCommands, answer, is_handled, say
from proxies._usage_meter import Counting, UsageDelta, UsageMeter

__all__ = ["Budget", "Limits"]


_ALL: Final = ("turns", "tokens", "cost")
_IN_A_TURN: Final = ("tokens", "cost")
"""Quantities that can reach their limit during a turn."""
_MAX_CLOSED: Final = 10_000
_MAX_TRIES: Final = 20
_RETRY_INTERVAL: Final = 0.1
"""Seconds; a file that is locked for longer than all tries is treated as unusable."""

log = get_logger(component="budget")


@attrs.frozen
class Limits:
    """Limits on one session, or on one day."""

    turns: int | None = attrs.field(default=None, validator=optional(ge(0)))
    tokens: int | None = attrs.field(default=None, validator=optional(ge(0)))
    cost: float | None = attrs.field(default=None, validator=optional(ge(0)))

    def reached(
        self, sums: Mapping[str, float], part: float = 1.0, names: Sequence[str] = _ALL
    ) -> str | None:
        """Return the first limit of which this fraction is used, as `3 of 5 turns`, or `None`."""
        for name in names:
            limit = getattr(self, name)
            if limit is not None and sums.get(name, 0) >= part * limit:
                return f"{_shown(sums.get(name, 0))} of {_shown(limit)} {name}"
        return None


@attrs.define
class _Session:
    meter: UsageMeter = attrs.field(factory=UsageMeter)
    sums: dict[str, float] = attrs.field(factory=dict)
    warned: set[str] = attrs.field(factory=set)
    running: bool = False
    reserved: int = 0
    """Turns in `sums` that have not ended."""
    announced: AnnouncedCommands = attrs.field(factory=AnnouncedCommands)

    def add(self, amounts: Mapping[str, float]) -> None:
        for name, amount in amounts.items():
            self.sums[name] = self.sums.get(name, 0) + amount


@attrs.define
class Budget(Proxy):
    """Limit turns, tokens and cost per session and per day."""

    session: Limits = attrs.field(factory=Limits)
    day: Limits = attrs.field(factory=Limits)
    currency: str = "USD"
    warn_at: float = attrs.field(default=0.8, validator=and_(gt(0), le(1)))
    tokens_are: Counting = "turn"
    file: Path | None = None
    _version: int = attrs.field(default=1, init=False)
    _ledger: Ledger = attrs.field(init=False)
    _commands: SlashCommands = attrs.field(factory=SlashCommands, init=False)
    _closed: dict[str, _Session] = attrs.field(factory=dict, init=False)
    """Closed sessions; one that is reopened keeps its sums."""
    _is_writing: bool = attrs.field(default=False, init=False)
    """Whether a task retries writing the ledger."""

    sessions = per_session(_Session)

    def __attrs_post_init__(self) -> None:
        if Limits() == self.session == self.day:
            raise ValueError("there are no limits: give `session` or `day`")
        self._ledger = Ledger(self.file)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Write unwritten amounts before the chain ends, also if the file is locked now."""
        yield
        await self._write()

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
        id = params["sessionId"]
        if id in self._closed:
            self.sessions[id] = self._closed.pop(id)
        elif id not in self.sessions:
            self.sessions[id].meter.restored = True
        return self._opened(params, await forward())

    @on("session/close")
    async def close(self, params: dict[str, Any], forward: Forward) -> Any:
        result = await forward()
        id = params["sessionId"]
        if id in self.sessions:
            self._closed[id] = self.sessions[id]
            if len(self._closed) > _MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
        return result

    @on("session/prompt")
    async def prompt(self, params: dict[str, Any], forward: Forward) -> Any:
        id = params["sessionId"]
        if self._commands.calls_other(params, self.sessions[id].announced):
            return await forward()
        session, today = self._session(id), self._ledger.today()
        refused = await self._reserve(session)
        if refused is not None:
            text = f"Refused: {refused}."
            return await answer(
                self.client, params, text, version=self._version, stop_reason="refusal"
            )
        session.running = is_counted = True
        try:
            result = await forward()
            is_counted = not is_handled(result)
        except BaseException:
            is_counted = False
            raise
        finally:
            if not is_counted:
                self._refund(session, today)
            others = session.reserved - (1 if is_counted and self._version == 1 else 0)
            session.running = others > 0
        if self._version == 1 and is_counted:
            session.reserved -= 1
            self._spend(session, attrs.evolve(session.meter.turn(result), turns=0))
            await self._warn(id)
        return result

    @on("session/update")
    async def update(self, raw: bytes, forward: Forward) -> None:
        await forward()
        params = update_of_kind(raw, "usage_update", "state_update", "available_commands_update")
        if params is None or is_handled(params["update"]):
            return
        id = params["sessionId"]
        session = self._session(id)
        if params["update"]["sessionUpdate"] == "available_commands_update":
            session.announced.read(params["update"])
            return
        spent = session.meter.update(params["update"])
        ended = bool(spent.turns)
        if ended:
            session.running = False
            if session.reserved:  # counted before it began; a turn without a prompt is counted now
                spent, session.reserved = attrs.evolve(spent, turns=0), 0
        self._spend(session, spent)
        over = self._reached(session, 1.0, _IN_A_TURN) if session.running else None
        if over is not None:
            session.running = False
            session.warned.add(_limit(over))
            await self.agent.cancel(id)
            text = f"Cancelled: the budget is used up ({over}).\n"
            await say(self.client, id, text, version=self._version)
        elif ended or spent != UsageDelta():
            await self._warn(id, _IN_A_TURN if session.running else _ALL)

    # ----------------------------------------------------------------------------------------------

    async def _reserve(self, session: _Session) -> str | None:
        """Reserve a turn of the session and of the day; returns the reason if a limit is
        reached."""
        over = self.session.reached(session.sums)
        if over is not None:
            return f"the budget is used up ({over} in this session)"
        session.add({"turns": 1})  # before the first await
        refused = await self._reserve_day() if self.day != Limits() else None
        if refused is not None:
            session.add({"turns": -1})
        else:
            session.reserved += 1
        return refused

    async def _reserve_day(self) -> str | None:
        for _ in range(_MAX_TRIES):
            try:
                over = self._ledger.reserve({"turns": 1}, self.day.reached)
            except BlockingIOError:
                await trio.sleep(_RETRY_INTERVAL)
            except LedgerError as exc:
                return f"the budget of the day is not known: {exc}"
            else:
                return None if over is None else f"the budget is used up ({over} today)"
        return f"the budget of the day is not known: {self.file} is locked by another program"

    def _refund(self, session: _Session, day: str) -> None:
        if session.reserved:
            session.reserved -= 1
            session.add({"turns": -1})
            if self.day != Limits():
                self._keep(lambda: self._ledger.refund({"turns": 1}, day))

    def _opened(self, params: dict[str, Any], result: Any) -> Any:
        if self._version > 1 and result is not None:
            self.sessions[opened_session(params, result)].announced.read(result)
        return result

    def _session(self, id: str) -> _Session:
        session = self.sessions[id]
        session.meter.counting = self.tokens_are
        return session

    def _spend(self, session: _Session, spent: UsageDelta) -> None:
        amounts: dict[str, float] = {
            "turns": spent.turns,
            "tokens": spent.tokens,
            "cost": spent.cost.get(self.currency, 0.0),
        }
        amounts = {name: amount for name, amount in amounts.items() if amount}
        session.add(amounts)
        if amounts and self.day != Limits():
            self._keep(lambda: self._ledger.add(amounts))

    def _keep(self, change: Callable[[], None]) -> None:
        """Change the ledger; a locked file is retried. Amounts that cannot be written are written
        at the next prompt, which is refused if that fails."""
        try:
            change()
        except BlockingIOError:
            if not self._is_writing:
                self._is_writing = True
                self.start_soon(self._write)
        except LedgerError as exc:
            log.warning("budget not written", reason=str(exc))

    async def _write(self) -> None:
        """Write the unwritten amounts once the file is not locked."""
        try:
            for _ in range(_MAX_TRIES):
                if self._ledger.is_written:
                    return
                try:
                    self._ledger.add({})
                except BlockingIOError:
                    await trio.sleep(_RETRY_INTERVAL)
                except LedgerError as exc:
                    log.warning("budget not written", reason=str(exc))
                    return
            reason = f"{self.file} is locked by another program"
            log.warning("budget not written", reason=reason)
        finally:
            self._is_writing = False

    def _reached(self, session: _Session, part: float, names: Sequence[str]) -> str | None:
        of_session = self.session.reached(session.sums, part, names)
        if of_session is not None:
            return f"{of_session} in this session"
        if self.day == Limits():
            return None
        of_day = self.day.reached(self._ledger.sums(), part, names)
        return None if of_day is None else f"{of_day} today"

    async def _warn(self, id: str, names: Sequence[str] = _ALL) -> None:
        """Warn the user, once per limit."""
        session = self._session(id)
        near = self._reached(session, self.warn_at, names)
        if near is not None and _limit(near) not in session.warned:
            session.warned.add(_limit(near))
            await say(self.client, id, f"\nBudget: {near} are used.\n", version=self._version)


def _limit(reached: str) -> str:
    """Return the limit in a text like `3 of 5 turns today`."""
    return reached.partition(" of ")[2]


def _shown(amount: float) -> str:
    return f"{amount:,.4f}".rstrip("0").rstrip(".")
