"""Drives one component's handshake: asks, asks again in the other dialect, times, and answers.

The clock runs only while the component has the ball: not while it waits for its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import msgspec
import trio

from conductor.connection.calls import Call
from conductor.messages import (
    INVALID_REQUEST,
    Payload,
    encode_error,
    request_error,
    request_pieces,
)
from conductor.routing.handshake import (
    AnsweredAlone,
    Ask,
    Closed,
    Echoed,
    Event,
    Fail,
    Handshake,
    Refused,
    SentBack,
)
from conductor.routing.sides import Side
from conductor.routing.wire import Wire

__all__ = ["Initialization"]


@attrs.define(eq=False, repr=False)
class Initialization:
    """The initialization of the component behind a wire, for the time that it takes.

    `failed` is called with the reason when it cannot succeed; `restart` must replace the process
    behind the wire, and call `connected` when that is done.
    """

    wire: Wire
    handshake: Handshake
    timeout: float
    failed: Callable[[str], None]
    restart: Callable[[], None]
    amend: Callable[[bytes], bytes] | None = None
    """Changes the component's answer before its predecessor gets it."""
    done: bool = attrs.field(default=False, init=False)
    deadline: float = attrs.field(default=float("inf"), init=False)
    changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    result: dict[str, Any] | None = attrs.field(default=None, init=False)
    """What the component answered, once it has."""
    refused: bool = attrs.field(default=False, init=False)
    """Whether it answered with an error, which was passed on as it is."""
    reply: Callable[[Call, Payload | None, Payload | None], None] = attrs.field(init=False)
    """Takes the answer for whoever asked: the predecessor, unless this is set to something else."""
    _asker: Call | None = attrs.field(default=None, init=False)
    _params: bytes = attrs.field(default=b"{}", init=False)
    _own: Call | None = attrs.field(default=None, init=False)
    _inner: Call | None = attrs.field(default=None, init=False)
    _restarting: bool = attrs.field(default=False, init=False)
    _side: _OwnSide = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._side = _OwnSide(self)
        self.reply = self._reply_to_predecessor

    # -- Init: what the wire tells --------------------------------------------------------------

    def begin(self, call: Call, params: Payload | None) -> None:
        if self.done or self._asker is not None:
            error = encode_error(
                INVALID_REQUEST,
                "Invalid request",
                f"{self.wire.name} is initialized only once in a connection",
            )
            self.reply(call, None, error)
            return
        self._asker = call
        self._params = bytes(params) if params is not None else b"{}"
        call.target = self
        self._ask()

    def forwarded(self, call: Call) -> None:
        self._inner = call
        self._set_deadline(float("inf"))

    def echoed(self, method: str) -> None:
        if self._own is not None:
            self._decide(Echoed(), lambda: None)

    def sent_back(self, method: str) -> None:
        if self._own is not None:
            self._decide(SentBack(method), lambda: None)

    # -- CallTarget ------------------------------------------------------------------------------

    def cancel(self, call: Call) -> None:
        if self._own is not None:
            self.wire.plain.cancel(self._own)

    # -- what happens to the connection ----------------------------------------------------------

    def connected(self) -> None:
        """A process is behind the wire, perhaps another one than before."""
        self._restarting = False
        if self._asker is not None and not self.done:
            self._ask()

    def closed(self) -> bool:
        """The component ended. True if that is dealt with by starting it again."""
        if self.done or self._asker is None:
            return False
        if self._restarting:
            return True
        if self._inner is not None:
            return False  # it knew our dialect: another one would not help
        self._decide(Closed(), lambda: None)
        return self._restarting

    def successor_answered(self, call: Call) -> None:
        if call is self._inner and not self.done:
            self._set_deadline(trio.current_time() + self.timeout)

    def answered(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        if call is not self._own:
            return  # an answer to an attempt that was given up
        if result is not None:
            if self.handshake.role == "proxy" and self._inner is None:
                self._decide(AnsweredAlone(), lambda: None)
            else:
                self._finish(result, None)
            return
        assert error is not None
        refused = request_error(error)
        text = f"{refused.message}: {refused.data}" if refused.data else refused.message
        if self._inner is not None:
            self._finish(None, error)
        else:
            self._decide(Refused(refused.code, text), lambda: self._finish(None, error))

    # -- the attempts ----------------------------------------------------------------------------

    def _ask(self) -> None:
        connection = self.wire.connection
        if connection is None or self._restarting:
            return
        assert self._asker is not None
        if self.handshake.dialect is not None:
            self.wire.dialect = self.handshake.dialect
        self._inner = None
        self._own = call = Call(self.handshake.method, self._side, target=self._side)
        id = connection.open(call)
        connection.write(request_pieces(id, self.handshake.method, self._params))
        if self._asker.cancelled:
            self.wire.plain.cancel(call)
        self._set_deadline(trio.current_time() + self.timeout)

    def _decide(self, event: Event, otherwise: Callable[[], None]) -> None:
        match self.handshake.after(event):
            case Ask(anew=anew):
                self._own = None
                if anew:
                    self._restarting = True
                    self.restart()
                else:
                    self._ask()
            case Fail(reason=reason):
                self._own = None
                self.failed(reason)
            case _:
                otherwise()

    def _finish(self, result: Payload | None, error: Payload | None) -> None:
        asker = self._asker
        assert asker is not None
        self._own = self._asker = None
        self._set_deadline(float("inf"))
        self.refused = result is None
        if result is not None:
            self.done = True
            try:
                decoded = msgspec.json.decode(result)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                decoded = None
            self.result = decoded if isinstance(decoded, dict) else {}
            self.wire.recollection.answered(asker, result)
            if self.amend is not None:
                result = self.amend(bytes(result))
        self.reply(asker, result, error)

    def _reply_to_predecessor(
        self, call: Call, result: Payload | None, error: Payload | None
    ) -> None:
        self.wire.plain.neighbour.respond(call, result, error)

    def _set_deadline(self, deadline: float) -> None:
        self.deadline = deadline
        self.changed.set()
        self.changed = trio.Event()

    async def watch(self) -> None:
        """Fail the component when it holds the ball for longer than the start timeout."""
        while not self.done:
            with trio.move_on_at(self.deadline) as scope:
                await self.changed.wait()
            if scope.cancelled_caught and self._own is not None:
                self._own = None
                self.failed(self._too_slow())
                return

    def _too_slow(self) -> str:
        name = self.handshake.method
        reason = f"it did not answer `{name}` within {self.timeout:g} s (start_timeout)"
        if self.handshake.may_retry:
            reason += "; if it only knows `_proxy/initialize`, give it `dialect: _proxy`"
        return reason


class _OwnSide(Side):
    """Where the answers to our own init requests arrive: its neighbour is itself."""

    __slots__ = ("_initialization",)

    def __init__(self, initialization: Initialization) -> None:
        self.neighbour = self
        self._initialization = initialization

    def respond(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        self._initialization.answered(call, result, error)
