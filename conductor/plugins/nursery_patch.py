"""Patch of `trio.Nursery` for exceptions without a `repr`.

trio (0.31 and later) puts the `repr` of an exception raised by a nursery's task into its cancel
reason, while the task leaves the scheduler. An exception with a `__repr__` that raises ends
`trio.run` there, and the process, past every `except` of the conductor. The patch gives such an
exception to the nursery first, without a reason, and reports the task as successful: the nursery is
cancelled and raises the exception as always.
"""

from __future__ import annotations

from typing import Any, Final

import outcome
import trio

__all__ = ["accept_exceptions_without_repr"]

_PLAIN: Final = frozenset({trio.Cancelled, StopAsyncIteration, KeyboardInterrupt})
"""Frequent types that are known to have a `repr`."""


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
