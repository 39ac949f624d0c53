"""The response to a request, for the task that waits for it."""

from __future__ import annotations

import msgspec
import trio

from conductor.jsonrpc.messages import Payload, error_to_exception

__all__ = ["AwaitedResponse"]


class AwaitedResponse(msgspec.Struct, eq=False):
    """Set once: by the response, or by the failure because of which none will arrive."""

    result: bytes | None = None
    """Raw JSON of the `result` member."""
    error: bytes | None = None
    """Raw JSON of the `error` member."""
    failure: Exception | None = None
    arrived: trio.Event = msgspec.field(default_factory=trio.Event)

    def set(self, result: Payload | None, error: Payload | None) -> None:
        """Copy the response and wake the waiting task."""
        self.result = None if result is None else bytes(result)
        self.error = None if error is None else bytes(error)
        self.arrived.set()

    def fail(self, failure: Exception) -> None:
        """Raise `failure` in the waiting task, unless the response has arrived."""
        if not self.arrived.is_set():
            self.failure = failure
            self.arrived.set()

    async def wait(self) -> bytes:
        """Wait for the raw result. Raises `RequestError` for an error response, or `failure`."""
        await self.arrived.wait()
        if self.failure is not None:
            raise self.failure
        if self.error is not None:
            raise error_to_exception(self.error)
        return b"null" if self.result is None else self.result
