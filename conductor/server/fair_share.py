"""Fair sharing of the event loop between principals: only those over their share wait.

Each connection and each chain has an `AccountRef` in its context, inherited by all its tasks. It
names the account of a principal (of an address, until the principal is known). A trio instrument
adds the duration of every step of such a task to the account, blocking calls included. Garbage
collections are not added: they interrupt a step of any account. (CPU time instead of the duration
was slower for others: on a busy machine, one that floods had too large a share.)

An account drains at its share of the time: all of it while no other account is active; otherwise
1 / (n + 1), with n accounts over their share, so that one share is always left for accounts with
little use. An account more than `SLICE` ahead is over its share: before its connections read,
forward or deliver more, they wait, first in, first out.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import attrs
import trio

__all__ = ["CURRENT_ACCOUNT", "SLICE", "Account", "AccountRef", "FairShare", "no_wait"]

SLICE: Final = 0.002
"""Seconds of loop time that an account may be ahead of its share."""
_RECENT: Final = 0.1
"""Seconds for which an account is active after its last step."""
_MOST: Final = 0.5
"""Maximum seconds that an account can be ahead, after steps longer than that."""
_ACCOUNTS: Final = 1000
"""Number of accounts above which idle ones are dropped."""


@attrs.define(eq=False)
class Account:
    """Use of the loop by one principal, or address."""

    name: str
    ahead: float = 0.0
    """Seconds used beyond its share, at the time `updated`."""
    updated: float = 0.0
    last: float = -1.0
    """End of its last step, on the clock of `FairShare`."""
    waiting: int = 0
    """Tasks in `wait_for_share`."""
    turns: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)


@attrs.define(eq=False)
class AccountRef:
    """The account that the steps of a connection's or chain's tasks are added to; replaceable."""

    account: Account


CURRENT_ACCOUNT: Final[ContextVar[AccountRef | None]] = ContextVar("account_ref", default=None)


@attrs.define(eq=False)
class FairShare:
    """The accounts of one server."""

    clock: Callable[[], float] = time.perf_counter
    _accounts: dict[str, Account] = attrs.field(factory=dict, init=False)
    _newest: Account = attrs.field(factory=lambda: Account(""), init=False)
    """Account of the last step."""
    _second: Account = attrs.field(factory=lambda: Account(""), init=False)
    """Account of the last step by another account than `_newest`."""
    _over: int = attrs.field(default=0, init=False)
    """Number of accounts with tasks in `wait_for_share`."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the steps of this trio run during the block."""
        meter = _Meter(self)
        trio.lowlevel.add_instrument(meter)
        gc.callbacks.append(meter.on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(meter.on_collection)
            trio.lowlevel.remove_instrument(meter)

    def account(self, name: str) -> Account:
        """The account of a principal or an address; created on first use."""
        found = self._accounts.get(name)
        if found is None:
            if len(self._accounts) >= _ACCOUNTS:
                self._drop_idle()
            found = self._accounts[name] = Account(name, updated=self.clock())
        return found

    def is_waiting(self, name: str) -> bool:
        """Whether a task waits for the share of this account."""
        return name in self._accounts and self._accounts[name].waiting > 0

    def add(self, account: Account, began: float, ended: float) -> None:
        """Add a step, from `began` to `ended` (seconds of the clock), to an account."""
        account.ahead += ended - began
        account.last = ended
        if account is not self._newest:
            self._second, self._newest = self._newest, account

    def ahead(self, account: Account) -> float:
        """Seconds that the account is ahead of its share at present."""
        now = self.clock()
        drained = (now - account.updated) * self._share(account, now)
        account.ahead = min(max(account.ahead - drained, 0.0), _MOST)
        account.updated = now
        return account.ahead

    async def wait_for_share(self, account: Account) -> None:
        """Return when the account is within its share; first in, first out per account."""
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

    def _drop_idle(self) -> None:
        now = self.clock()
        for account in list(self._accounts.values()):
            if now - account.last > _MOST * (1 + max(self._over, 1)) and not account.waiting:
                del self._accounts[account.name]


async def no_wait() -> None:
    """The `wait_for_share` of a connection without an account."""


class _Meter(trio.abc.Instrument):
    """Adds the duration of each task step, without garbage collections, to the task's account."""

    def __init__(self, shares: FairShare) -> None:
        self._shares = shares
        self._began = shares.clock()  # for the current step
        self._collection_began = self._began

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._shares.clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        account_ref = task.context.get(CURRENT_ACCOUNT)
        if account_ref is not None:
            self._shares.add(account_ref.account, self._began, self._shares.clock())

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Callback for `gc.callbacks`."""
        if phase == "start":
            self._collection_began = self._shares.clock()
        else:
            self._began += self._shares.clock() - self._collection_began
