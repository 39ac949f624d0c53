"""Nurseries of plugins, and exceptions that have no `repr`.

trio (0.31 and later) puts the `repr` of what a nursery's task raised into its cancel reason, while
the task leaves the scheduler. An exception whose `__repr__` raises there ends `trio.run`, and the
process, past every `except` of ours. So such an exception is given to the nursery first, without a
reason, and trio takes the task for one that succeeded: the nursery is cancelled and raises the
exception as always.
"""

from __future__ import annotations

from typing import Any, Final

import outcome
import trio

__all__ = ["accept_exceptions_without_repr"]

_PLAIN: Final = frozenset({trio.Cancelled, StopAsyncIteration, KeyboardInterrupt})
"""Frequent, and with a `repr`."""


def accept_exceptions_without_repr() -> None:
    """Guard trio's nurseries; to be called before plugins run. A second call does nothing."""
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
    """Let a nursery raise an exception, and cancel it now."""
    if hasattr(nursery, "_pending_excs"):  # gone if its task has ended before it
        nursery._add_exc(exc, None)


def _has_repr(exc: BaseException) -> bool:
    if type(exc) in _PLAIN:
        return True
    try:
        repr(exc)
    except BaseException:  # whatever a plugin's code raises
        return False
    return True
