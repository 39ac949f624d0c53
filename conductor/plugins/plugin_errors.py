"""Containment of exceptions raised by plugin code.

Every call into plugin code (handlers, observers, callbacks, `lifespan`, tasks) goes through this
module. A plugin may raise any `BaseException`; none of them may end the conductor or leave a
request unanswered. Two exceptions are not failures and must propagate: a `trio.Cancelled` of a
cancelled scope around the call, and the `GeneratorExit` of a coroutine that is being closed.
A `Cancelled` that a plugin raises although no scope is cancelled is a failure like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import trio

from conductor.errors import RequestError

__all__ = ["call_plugin", "contain_failure", "first_exception", "request_error_in", "split_failure"]

T = TypeVar("T")


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
