"""The front door: what the client meets until its chain is initialized, and no longer.

Before `initialize` nothing runs. With it the components start; what the client sends in the
meantime waits here, in order; when the answer is there, the client's side is linked to the first
component's, and the door is out of the way. A failed initialization may be tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from conductor.connection.calls import Call
from conductor.connection.runs import Run
from conductor.errors import ComponentError
from conductor.messages import INVALID_REQUEST, Payload, encode_error, error_of
from conductor.routing.capabilities import protocol_version
from conductor.routing.sides import Side, link

__all__ = ["FrontDoor"]

State = Literal["waiting", "starting", "open"]


class FrontDoor:
    """Stands between the client's side and the first component's.

    `start` begins to start the chain and returns the first component's client side; it raises
    `ComponentError`. `amend` may change the answer to `initialize`. `opened` is called when the
    client has its answer, `closed` when it has an error instead.
    """

    def __init__(
        self,
        client: Side,
        *,
        start: Callable[[], Side],
        amend: Callable[[bytes], bytes],
        opened: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self.state: State = "waiting"
        self.tried = False
        """Whether the client has asked for initialization."""
        self.version = 1
        """The protocol version that was negotiated."""
        self.params: bytes | None = None
        """The params of the client's last `initialize`."""
        self.answer = b""
        """What the client was answered to `initialize`."""
        self.size = 0
        """Bytes that wait behind the door."""
        self._client = client
        self._start = start
        self._amend = amend
        self._opened = opened
        self._closed = closed
        self._outside = _Outside(self)
        self._inside = _Inside(self)
        self._asker: Call | None = None
        self._own: Call | None = None
        self._queue: deque[_Queued] = deque()
        link(client, self._outside)

    def fail(self, error: ComponentError) -> None:
        """The chain cannot be started: everyone who waits is told why; it may be tried again."""
        if self.state == "starting":
            self._close(error_of(error))

    # -- from the client ---------------------------------------------------------------------------

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        if method == "initialize" and self.state == "waiting":
            self._initialize(call, params)
        elif method == "initialize":
            self._refuse(call, "`initialize` is already under way")
        elif self.state == "waiting":
            self._refuse(call, "expected `initialize` request")
        else:
            call.target = self
            self._wait(_Queued(call, method, params))

    def notify(self, method: str, params: Payload | None) -> None:
        if self.state == "starting":
            self._wait(_Queued(None, method, params))

    def cancel(self, call: Call) -> None:
        """Cancel `initialize` itself; others keep their mark until they are sent on."""
        if call is self._asker and self._own is not None:
            self._own.cancel()

    def _initialize(self, call: Call, params: Payload | None) -> None:
        self.state, self.tried = "starting", True
        self._asker = call
        call.target = self
        self.params = kept = None if params is None else bytes(params)
        try:
            first = self._start()
        except ComponentError as exc:
            self._close(error_of(exc))
            return
        link(self._inside, first)
        self._own = Call("initialize", self._inside)
        first.request(self._own, "initialize", kept)

    def _wait(self, queued: _Queued) -> None:
        if queued.params is not None:
            queued.params = bytes(queued.params)
            self.size += len(queued.params)
        self._queue.append(queued)

    def _refuse(self, call: Call, problem: str) -> None:
        error = encode_error(INVALID_REQUEST, "Invalid request", problem)
        self._client.respond(call, None, error)

    # -- from the chain ----------------------------------------------------------------------------

    def answered(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call is not self._own:
            return
        if result is None:
            assert error is not None
            self._close(bytes(error))
            return
        asker, self._own = self._asker, None
        assert asker is not None
        self.version = protocol_version(result)
        self.answer = self._amend(bytes(result))
        self._client.respond(asker, self.answer, None)
        self.state = "open"
        first = self._inside.neighbour
        link(self._client, first)
        for queued in self._queue:
            if queued.call is None:
                first.notify(queued.method, queued.params)
            else:
                queued.call.target = None
                first.request(queued.call, queued.method, queued.params)
        self._queue.clear()
        self.size = 0
        self._opened()

    def _close(self, error: bytes) -> None:
        asker, self._asker, self._own = self._asker, None, None
        self.state = "waiting"
        if asker is not None:
            self._client.respond(asker, None, error)
        for queued in self._queue:
            if queued.call is not None:
                self._client.respond(queued.call, None, error)
        self._queue.clear()
        self.size = 0
        self._closed()


class _Queued(msgspec.Struct, eq=False):
    call: Call | None
    method: str
    params: Payload | None


class _Outside(Side):
    """The side that the client faces."""

    __slots__ = ("_door",)

    def __init__(self, door: FrontDoor) -> None:
        super().__init__()
        self._door = door

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._door.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._door.notify(method, params)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        """The client's answer to what a component asked while the chain was starting."""
        self._door._inside.neighbour.respond(call, result, error)

    def cancel(self, call: Call) -> None:
        self._door.cancel(call)


class _Inside(Side):
    """The side that the first component faces."""

    __slots__ = ("_door",)

    def __init__(self, door: FrontDoor) -> None:
        super().__init__()
        self._door = door

    def request(self, call: Call, method: str, params: Payload | None) -> None:
        self._door._client.request(call, method, params)

    def notify(self, method: str, params: Payload | None) -> None:
        self._door._client.notify(method, params)

    def notify_run(self, run: Run) -> None:
        self._door._client.notify_run(run)

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._door.answered(call, result, error)

    def cancel(self, call: Call) -> None:
        call.cancel()
