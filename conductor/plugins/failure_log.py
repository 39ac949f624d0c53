"""`FailureLog`: the one place to which failures of a plugin's code go."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from conductor.log import Logger

__all__ = ["FailureListener", "FailureLog"]

FailureListener = Callable[[BaseException, str | None], object]
"""Called with an exception of a plugin's code, and with `file:line` of the handler that raised it
or `None`. `conductor.testing` raises it in the test."""


@attrs.define(eq=False)
class FailureLog:
    """Logs the exceptions of one plugin's handlers, tasks and callbacks, which end nothing else.

    A listener gets them instead of the log, or as well (`logs_all`). `RequestError` raised by the
    handler of a request is its answer, and no failure.
    """

    log: Logger
    listener: FailureListener | None = None
    logs_all: bool = False

    def report(
        self, event: str, exc: BaseException, *, handler: str | None = None, **fields: object
    ) -> None:
        """Log an exception as `event`, with these fields, and tell the listener."""
        if self.listener is not None:
            self.listener(exc, handler)
            if not self.logs_all:
                return
        if handler is not None:
            fields["handler"] = handler
        self.log.error(event, **fields, exc_info=exc)
