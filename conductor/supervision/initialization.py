"""Handshake driver: initializes one component, tries the other dialect, enforces `start_timeout`.

`routing.handshake` decides what follows each reaction of the component; this module sends the
requests and runs the clock. The clock stops while a proxy waits for its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

import attrs
import trio

from conductor.json_values import NestedTooDeeply, decode_value
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Payload,
    encode_error,
    error_to_exception,
)
from conductor.routing.envelope import INIT_METHODS, marked
from conductor.routing.handshake import FailStart, Handshake, NextStep, SendInit
from conductor.routing.link import Link
from conductor.routing.stage import ForwardRequest, ForwardResponse, SeenRequests, Stage
from conductor.supervision.slow_setups import SLOW

__all__ = ["AnswerInterceptor", "Initialization"]


_INITIALIZE: Final = frozenset({"initialize"})


class AnswerInterceptor(Protocol):
    """Decides about a component's answer to `initialize` before the predecessor gets it."""

    def take_over(
        self,
        initialization: Initialization,
        call: InFlightRequest,
        params: bytes,
        result: Payload | None,
        error: Payload | None,
    ) -> bool:
        """Returns whether it takes over the call, after `answer_again` or `start_again`, and has
        another component ask."""

    def explained(self, params: bytes, error: Payload) -> Payload:
        """The error that the predecessor gets for an `initialize` with these params."""


@attrs.define(eq=False, repr=False)
class Initialization(Stage):
    """The initialization of the component behind a link, in one or several processes.

    `on_failed` is called with the reason when it cannot succeed. `restart_process` must replace the
    process behind the link and call `on_connected` afterwards. `on_initialized` is called when the
    component has answered with a result, before its predecessor gets it.
    """

    name = "initialization"
    sent: frozenset[str] = attrs.field(default=_INITIALIZE | frozenset(INIT_METHODS), init=False)

    link: Link
    handshake: Handshake
    timeout: float
    on_failed: Callable[[str], None]
    restart_process: Callable[[], None]
    patch_result: Callable[[bytes], bytes] | None = None
    """Changes the raw JSON of the result before the predecessor gets it."""
    on_initialized: Callable[[], None] = lambda: None
    on_slow: Callable[[], None] = lambda: None
    """Called once when the component has not answered for `SLOW` seconds."""
    answer_interceptor: AnswerInterceptor | None = attrs.field(default=None, init=False)
    done: bool = attrs.field(default=False, init=False)
    deadline: float = attrs.field(default=inf, init=False)
    changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    result: dict[str, Any] | None = attrs.field(default=None, init=False)
    """The decoded result; `{}` if it is not an object, None before it arrives."""
    refused: bool = attrs.field(default=False, init=False)
    """Whether the component answered with an error, which was forwarded unchanged."""
    reply: Callable[[InFlightRequest, Payload | None, Payload | None], None] = attrs.field(
        init=False
    )
    """Takes the response; the default sends it to the predecessor, a replay sets its own."""
    _originator: InFlightRequest | None = attrs.field(default=None, init=False)
    _params: bytes = attrs.field(default=b"{}", init=False)
    _attempt: InFlightRequest | None = attrs.field(default=None, init=False)
    _successor_request: InFlightRequest | None = attrs.field(default=None, init=False)
    _awaiting_process: bool = attrs.field(default=False, init=False)
    _known_result: bytes | None = attrs.field(default=None, init=False)
    _at_successor: SeenRequests | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.reply = self._reply_to_predecessor
        self.link.initializer = self
        self.link.plain.insert(self)
        if self.link.enveloped is not None:
            self._at_successor = SeenRequests(
                self.name, _INITIALIZE, self._on_forwarded, self._on_successor_response
            )
            self.link.enveloped.insert(self._at_successor)

    def remove(self) -> None:
        """Another initialization takes the place of this one."""
        self.port.remove(self)
        if self._at_successor is not None:
            self._at_successor.port.remove(self._at_successor)

    # -- Stage: it takes the `initialize` for the component ---------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self.begin(call, params)

    def receive_response(
        self,
        forward: ForwardResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        self.respond(call, result, error)

    # -- reactions of the component --------------------------------------------------------------

    def begin(self, call: InFlightRequest, params: Payload | None) -> None:
        """The predecessor sent `initialize` for the component, the first or a repeated one."""
        if self._originator is not None:
            problem = f"`initialize` of {self.link.name} is already under way"
            self.reply(call, None, encode_error(INVALID_REQUEST, "Invalid request", problem))
            return
        self._originator = call
        self._params = bytes(params) if params is not None else b"{}"
        call.target = self
        if self._known_result is not None:
            self._finish(self._known_result, None)
        else:
            self._send_attempt()

    def _on_forwarded(self, call: InFlightRequest, params: Payload | None) -> None:
        """The component sent `initialize` to its successor: it waits for that."""
        self._successor_request = call
        self._set_deadline(float("inf"))

    def on_echoed(self) -> None:
        if self._attempt is not None:
            self._take(self.handshake.echoed_to_successor())

    def on_sent_back(self, method: str) -> None:
        if self._attempt is not None:
            self._take(self.handshake.echoed_to_predecessor(method))

    # -- RequestTarget ---------------------------------------------------------------------------

    @property
    def component_name(self) -> str:
        return self.link.name

    def cancel(self, call: InFlightRequest) -> None:
        if self._attempt is not None:
            self._cancel_attempt(call, self._attempt)

    def _cancel_attempt(self, originator: InFlightRequest, attempt: InFlightRequest) -> None:
        port = self.link.plain
        port.cancel_before("initialization", originator)  # several attempts may stand for it
        port.cancel(attempt)

    # -- connection events ------------------------------------------------------------------------

    def on_connected(self) -> None:
        """A process is connected to the link: the first, or one that replaces it."""
        self._awaiting_process = False
        if self._originator is not None and not self.done:
            self._send_attempt()

    def on_closed(self) -> bool:
        """The process ended. Returns whether the handshake continues in a new process."""
        if self._awaiting_process:
            return True
        if self.done or self._originator is None:
            return False
        if self._successor_request is not None:
            return False  # the component understood the dialect: another one would not help
        self._take(self.handshake.closed_early())
        return self._awaiting_process

    def _on_successor_response(self, call: InFlightRequest) -> None:
        """The successor answered the `initialize` that the component forwarded."""
        if call is self._successor_request and not self.done:
            self._set_deadline(trio.current_time() + self.timeout)

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        """As originator of the attempts."""
        if call is not self._attempt:
            return  # a late response to an abandoned attempt
        if self._is_taken_over(result, error):
            return
        if result is not None:
            if self._is_unforwarded:
                self._take(self.handshake.answered_alone())
            else:
                self._finish(result, None)
            return
        assert error is not None
        refused = error_to_exception(error)
        text = f"{refused.message}: {refused.data}" if refused.data else refused.message
        if self.answer_interceptor is not None:
            error = self.answer_interceptor.explained(self._params, error)
        has_dialect = self.done or self._successor_request is not None
        step = None if has_dialect else self.handshake.answered_with_error(refused.code, text)
        if step is None:
            self._finish(None, error)
        else:
            self._take(step)

    @property
    def _is_unforwarded(self) -> bool:
        """Whether a proxy has not initialized its successor, which the first `initialize` must."""
        is_proxy = self.handshake.role == "proxy"
        return is_proxy and self._successor_request is None and not self.done

    # -- for the answer interceptor --------------------------------------------------------------

    def answer_again(self, result: Payload) -> None:
        """The next `initialize` gets this result, without a message to the component."""
        self._known_result = bytes(result)
        self._release_originator()

    def start_again(self) -> None:
        """The next `initialize` goes to a new process of the component."""
        self._awaiting_process = True
        self._release_originator()
        self.restart_process()

    def _is_taken_over(self, result: Payload | None, error: Payload | None) -> bool:
        originator = self._originator
        if self.answer_interceptor is None or originator is None or self.done:
            return False
        return self.answer_interceptor.take_over(self, originator, self._params, result, error)

    def _release_originator(self) -> None:
        assert self._originator is not None
        self.link.session_log.log_response(self._originator, None)
        self._originator.target = None
        self._originator = self._attempt = None
        self._set_deadline(float("inf"))

    # -- the attempts ----------------------------------------------------------------------------

    def _send_attempt(self) -> None:
        connection = self.link.connection
        if not self.done and (connection is None or self._awaiting_process):
            return
        assert self._originator is not None
        if self.handshake.dialect is not None:
            self.link.dialect = self.handshake.dialect
        self._successor_request = None
        self._attempt = call = InFlightRequest(self.handshake.method, self)
        params = marked(self._params) if self.handshake.dialect == "_meta" else self._params
        self.link.plain.send(self, call, self.handshake.method, params)
        if self._originator.cancelled:
            self._cancel_attempt(self._originator, call)
        self._set_deadline(trio.current_time() + self.timeout)

    def _take(self, step: NextStep) -> None:
        self._attempt = None
        match step:
            case SendInit(in_new_process=True):
                self._awaiting_process = True
                self.restart_process()
            case SendInit():
                self._send_attempt()
            case FailStart(reason):
                self.on_failed(reason)

    def _finish(self, result: Payload | None, error: Payload | None) -> None:
        originator = self._originator
        assert originator is not None
        self._attempt = self._originator = None
        self._set_deadline(float("inf"))
        decoded: Any = None
        if result is not None:
            try:
                decoded = decode_value(result)
            except NestedTooDeeply as exc:
                result, error = None, encode_error(INTERNAL_ERROR, f"{self.link.name}: {exc}")
            except ValueError:
                pass
        is_repeated, self.refused = self.done, result is None and not self.done
        if result is not None:
            self.done = True
            self.result = decoded if isinstance(decoded, dict) else {}
            if not is_repeated:
                self.on_initialized()
            self.link.session_log.log_response(originator, result)
            if self.patch_result is not None:
                result = self.patch_result(bytes(result))
        self.reply(originator, result, error)

    def _reply_to_predecessor(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        self.link.plain.neighbour.respond(call, result, error)

    def _set_deadline(self, deadline: float) -> None:
        self.deadline = deadline
        self.changed.set()
        self.changed = trio.Event()

    async def enforce_timeout(self) -> None:
        """Fail the start when the component exceeds `start_timeout`; returns when initialized."""
        is_slow = self.timeout <= SLOW
        while not self.done:
            wakes_at = self.deadline if is_slow else self.deadline - self.timeout + SLOW
            with trio.move_on_at(wakes_at) as scope:
                await self.changed.wait()
            if scope.cancelled_caught and not is_slow:
                is_slow = True
                self.on_slow()
            elif scope.cancelled_caught and self._attempt is not None:
                self._attempt = None
                self.on_failed(self._timeout_reason())
                return

    def _timeout_reason(self) -> str:
        name = self.handshake.method
        reason = f"it did not answer `{name}` within {self.timeout:g} s (start_timeout)"
        if self.handshake.may_retry:
            reason += "; if it only knows `_proxy/initialize`, give it `dialect: _proxy`"
        return reason
