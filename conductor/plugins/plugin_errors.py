"""Containment of exceptions raised by plugin code.

Every call into plugin code (handlers, observers, callbacks, `lifespan`, tasks) goes through this
module. A plugin may raise any `BaseException`; none of them may end the conductor or leave a
request unanswered. Two exceptions are not failures and must propagate: a `trio.Cancelled` of a
cancelled scope around the call, and the `GeneratorExit` of a coroutine that is being closed.
A `Cancelled` that a plugin raises although no scope is cancelled is a failure like any other.

A patch of `trio.Nursery` accepts exceptions without a `repr`: trio (0.31 and later) puts the `repr`
of an exception raised by a nursery's task into its cancel reason, while the task leaves the
scheduler. A `__repr__` that raises ends `trio.run` there, and the process, past every `except` of
the conductor. The patch gives such an exception to the nursery first, without a reason, and reports
the task as successful: the nursery is cancelled and raises the exception as always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import outcome
import trio

from conductor.errors import RequestError

__all__ = [
    "accept_exceptions_without_repr",
    "call_plugin",
    "contain_failure",
    "first_exception",
    "request_error_in",
    "split_failure",
]

T = TypeVar("T")
_PLAIN: Final = frozenset({trio.Cancelled, StopAsyncIteration, KeyboardInterrupt})
"""Frequent types that are known to have a `repr`."""


def split_failure(exc: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """The plugin's failure in `exc`, and the exception that must propagate; each may be None."""
    leaves = _leaves(exc)
    passing = [leaf for leaf in leaves if _must_propagate(leaf)]
    if not passing:
        return exc, None
    if len(passing) == len(leaves):
        return None, exc
    failures = [leaf for leaf in leaves if not _must_propagate(leaf)]
    failure = failures[0] if len(failures) == 1 else BaseExceptionGroup("failures", failures)
    return failure, passing[0]


def request_error_in(exc: BaseException) -> RequestError | None:
    """The `RequestError` in an exception or group: trio groups what a nursery's tasks raise."""
    if isinstance(exc, RequestError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        found = [request_error_in(each) for each in exc.exceptions]
        if None not in found:
            return found[0]
    return None


def contain_failure(exc: BaseException, failed: Callable[[BaseException], object]) -> None:
    """Call `failed` with the plugin's failure in `exc`; re-raise what must propagate."""
    failure, passing = split_failure(exc)
    if failure is not None:
        failed(failure)
    if passing is not None:
        raise passing


def call_plugin(
    failed: Callable[[BaseException], object], function: Callable[..., T], *args: object
) -> T | None:
    """Call a synchronous function of a plugin; None if it failed."""
    try:
        return function(*args)
    except BaseException as exc:
        contain_failure(exc, failed)
        return None


def first_exception(exc: BaseException) -> BaseException:
    """The first exception of a group, at any depth; any other exception is returned as it is."""
    return _leaves(exc)[0]


def _leaves(exc: BaseException) -> list[BaseException]:
    """The leaves in order, without recursion: groups of a plugin may be nested to any depth."""
    leaves: list[BaseException] = []
    waiting = [exc]
    while waiting:
        next_one = waiting.pop()
        if isinstance(next_one, BaseExceptionGroup):
            waiting += reversed(_members(next_one))
        else:
            leaves.append(next_one)
    return leaves


_members: Callable[[BaseExceptionGroup[BaseException]], tuple[BaseException, ...]]
_members = BaseExceptionGroup.exceptions.__get__  # not a property of a subclass


def _must_propagate(exc: BaseException) -> bool:
    if isinstance(exc, trio.Cancelled):
        return trio.current_effective_deadline() == -math.inf
    return isinstance(exc, GeneratorExit) and not trio.lowlevel.in_trio_task()


def accept_exceptions_without_repr() -> None:
    """Patch `trio.Nursery`; call it before plugins run. A second call does nothing."""
    nursery: Any = trio.Nursery
    if getattr(nursery._child_finished, "__module__", None) == __name__:
        return
    child_finished, block_finished = nursery._child_finished, nursery._nested_child_finished

    def guarded_child(self: Any, task: Any, result: outcome.Outcome[object]) -> None:
        if isinstance(result, outcome.Error) and not _has_repr(result.error):
            _keep(self, result.error)
            result = outcome.Value(None)
        child_finished(self, task, result)

    async def guarded_block(self: Any, exc: BaseException | None) -> BaseException | None:
        if exc is not None and not _has_repr(exc):
            _keep(self, exc)
            exc = None
        found: BaseException | None = await block_finished(self, exc)
        return found

    nursery._child_finished, nursery._nested_child_finished = guarded_child, guarded_block


def _keep(nursery: Any, exc: BaseException) -> None:
    """Add an exception to those that a nursery raises, and cancel the nursery."""
    if hasattr(nursery, "_pending_excs"):  # absent if the nursery's task has ended
        nursery._add_exc(exc, None)


def _has_repr(exc: BaseException) -> bool:
    if type(exc) in _PLAIN:
        return True
    try:
        repr(exc)
    except BaseException:  # plugin code may raise anything
        return False
    return True
