"""Shares of the event loop: a principal that asks for much waits, not the other ones.

Each connection and each chain has a `Payer` in its context, which all its tasks inherit; it names
the account of a principal (of an address, until the principal is known). An instrument adds the
time of every step of such a task to the account, including what the step waits for: for others the
loop is blocked either way.

An account drains at its share of the time: all of it while no other account is active; otherwise
1 / (n + 1), with n accounts over their share, so that one share is always left for those who ask
for little. An account that is more than `SLICE` ahead is over its share: before its connections
read, pass on or deliver more, they wait for their turn, first in, first out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import attrs
import trio

__all__ = ["PAYER", "SLICE", "Account", "Payer", "Shares", "at_once"]

SLICE: Final = 0.002
"""Seconds of the loop that an account may be ahead of its share."""
_RECENT: Final = 0.1
"""Seconds for which an account is active after its last step."""
_MOST: Final = 0.5
"""Seconds that an account can be ahead at most: a step may also be long because the machine has
other things to do."""
_ACCOUNTS: Final = 1000
"""How many accounts are kept before those that owe nothing are dropped."""


@attrs.define(eq=False)
class Account:
    """Use of the loop by one principal, or address."""

    name: str
    ahead: float = 0.0
    """Seconds that it has used beyond its share, as of `updated`."""
    updated: float = 0.0
    last: float = -1.0
    """When its last step ended."""
    waiting: int = 0
    """Tasks that wait for their turn."""
    turns: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)


@attrs.define(eq=False)
class Payer:
    """Whose account the steps of a connection's or chain's tasks are added to."""

    account: Account


PAYER: Final[ContextVar[Payer | None]] = ContextVar("payer", default=None)


@attrs.define(eq=False)
class Shares:
    """The accounts of one server."""

    clock: Callable[[], float] = time.perf_counter
    _accounts: dict[str, Account] = attrs.field(factory=dict, init=False)
    _newest: Account = attrs.field(factory=lambda: Account(""), init=False)
    """The account of the last step, and of the last step of another."""
    _second: Account = attrs.field(factory=lambda: Account(""), init=False)
    _over: int = attrs.field(default=0, init=False)
    """Accounts with tasks that wait for their turn."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the steps of this trio run for as long as the block lasts."""
        meter = _Meter(self)
        trio.lowlevel.add_instrument(meter)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(meter)

    def account(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            if len(self._accounts) >= _ACCOUNTS:
                self._drop_settled()
            found = self._accounts[name] = Account(name, updated=self.clock())
        return found

    def add(self, account: Account, began: float, ended: float) -> None:
        """Add a step to an account."""
        account.ahead += ended - began
        account.last = ended
        if account is not self._newest:
            self._second, self._newest = self._newest, account

    def ahead(self, account: Account) -> float:
        """Seconds that the account is ahead of its share now."""
        now = self.clock()
        drained = (now - account.updated) * self._share(account, now)
        account.ahead = min(max(account.ahead - drained, 0.0), _MOST)
        account.updated = now
        return account.ahead

    async def turn(self, account: Account) -> None:
        """Return once the account is not over its share; its callers take turns, in order."""
        if not account.waiting and self.ahead(account) <= SLICE:
            return
        self._over += not account.waiting
        account.waiting += 1
        try:
            async with account.turns:
                while (ahead := self.ahead(account)) > SLICE:  # noqa: ASYNC110
                    await trio.sleep((ahead - SLICE / 2) / self._share(account, self.clock()))
        finally:
            account.waiting -= 1
            self._over -= not account.waiting

    def _share(self, account: Account, now: float) -> float:
        other = self._second if account is self._newest else self._newest
        if now - other.last > _RECENT:
            return 1.0
        return 1 / (1 + max(self._over, 1))

    def _drop_settled(self) -> None:
        now = self.clock()
        for account in list(self._accounts.values()):
            if now - account.last > _MOST * (1 + max(self._over, 1)) and not account.waiting:
                del self._accounts[account.name]


async def at_once() -> None:
    """The turn of what has no share."""


class _Meter(trio.abc.Instrument):
    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._began = shares.clock()  # the step that installs it

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._shares.clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        payer = task.context.get(PAYER)
        if payer is not None:
            self._shares.add(payer.account, self._began, self._shares.clock())
