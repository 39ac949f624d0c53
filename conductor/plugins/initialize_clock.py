"""The `start_timeout` of a plugin's `initialize` handler.

The time in which the handler waits for its successor does not count: the successor has a
`start_timeout` of its own.
"""

from __future__ import annotations

import attrs
import trio

from conductor.errors import StartError
from conductor.plugins.handler_call import HandlerCall

__all__ = ["InitializeClock"]


@attrs.frozen(eq=False, repr=False)
class InitializeClock:
    """Sets the deadline of `initialize` handlers. `start_timeout` is in seconds."""

    name: str
    start_timeout: float

    def start(self, handler_call: HandlerCall) -> None:
        """Start the clock, if the handler handles `initialize`."""
        response_state = handler_call.response_state
        if response_state is not None and response_state.call.method == "initialize":
            response_state.scope.deadline = trio.current_time() + self.start_timeout

    def pause(self, handler_call: HandlerCall) -> None:
        """Stop the clock while the handler waits for a response."""
        if handler_call.response_state is not None:
            handler_call.response_state.scope.deadline = float("inf")

    def error(self) -> StartError:
        """The error of a handler that took too long."""
        seconds = f"{self.start_timeout:g} s (start_timeout)"
        return StartError(self.name, f"it did not answer `initialize` within {seconds}")
