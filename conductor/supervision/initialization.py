"""Initialization of one component: method name and dialect, `start_timeout`, attempts.

The dialect of a proxy is not known before it answers. `proxy/initialize` is sent first. Reactions
of existing components that implement only the other name, and what the conductor does:

    error -32601                        send again in the other dialect, on the same connection
    error -32600                        the process may be unusable: restart it, other dialect
                                        (unless about the protocol version: a final answer)
    init returned in an envelope        (Rust) refuse the echo, send again on the same connection
    result without having initialized   the component is not a proxy
      its successor
    init returned as it was sent        the component does not speak ACP (`cat`)
    connection closed                   restart it, other dialect

The oldest dialect is spoken only to a component whose chain file names it. With no dialect left to
try, the start fails, and the reason says what the component may be instead. Any other error is the
component's answer and is passed on to the predecessor. The clock of `start_timeout` stops while a
proxy waits for its successor.
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
    METHOD_NOT_FOUND,
    Payload,
    RawMember,
    encode_error,
    error_to_exception,
)
from conductor.routing.envelope import DIALECTS, INIT_METHODS, TRIED, Dialect, marked
from conductor.routing.link import Link
from conductor.routing.stage import ForwardRequest, ForwardResponse, SeenRequests, Stage
from conductor.supervision.deadlines import SLOW

__all__ = ["AnswerInterceptor", "Initialization"]


_INITIALIZE: Final = frozenset({"initialize"})


class AnswerInterceptor(Protocol):
    """Decides about a component's answer to `initialize` before the predecessor gets it."""

    def take_over(
        self,
        initialization: Initialization,
        call: InFlightRequest,
        params: bytes,
        result: RawMember,
        error: RawMember,
    ) -> bool:
        """Returns whether it takes over the call, after `answer_again` or `start_again`, and has
        another component ask."""


@attrs.define(eq=False, repr=False)
class Initialization(Stage):
    """The initialization of the component behind a link, in one or several processes.

    If `dialect` is given, no other one is tried; an agent has none. `on_failed` is called with the
    reason, which is text for the user, when it cannot succeed. `restart_process` must replace the
    process behind the link and call `on_connected` afterwards. `on_initialized` is called when the
    component has answered with a result, before its predecessor gets it.
    """

    name = "initialization"
    sent: frozenset[str] = attrs.field(default=_INITIALIZE | frozenset(INIT_METHODS), init=False)

    link: Link
    dialect: Dialect | None
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

    _untried: list[Dialect] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        if self.link.role == "proxy":
            self._untried = list(TRIED if self.dialect is None else (self.dialect,))
            self.dialect = self._untried.pop(0)
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

    @property
    def method(self) -> str:
        """Method name of the initialization to send now."""
        return "initialize" if self.dialect is None else DIALECTS[self.dialect].initialize

    # -- Stage: it takes the `initialize` for the component ---------------------------------------

    def send_request(
        self, forward: ForwardRequest, call: InFlightRequest, method: str, params: Payload | None
    ) -> None:
        self.begin(call, params)

    def receive_response(
        self, forward: ForwardResponse, call: InFlightRequest, result: RawMember, error: RawMember
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
            what = "it sent its own initialization on to its successor"
            self._try_again(f"{what}: it does not know `{self.method}`")

    def on_sent_back(self, method: str) -> None:
        if self._attempt is not None:
            what = "what it was sent" if method == self.method else f"`{method}`"
            self._fail(
                f"it sent {what} back instead of answering `{self.method}`: is it a program that "
                "speaks ACP?"
            )

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
        self._try_again("it ended during initialization", in_new_process=True)
        return self._awaiting_process

    def _on_successor_response(self, call: InFlightRequest) -> None:
        """The successor answered the `initialize` that the component forwarded."""
        if call is self._successor_request and not self.done:
            self._set_deadline(trio.current_time() + self.timeout)

    def respond(self, call: InFlightRequest, result: RawMember, error: RawMember) -> None:
        """As originator of the attempts."""
        if call is not self._attempt:
            return  # a late response to an abandoned attempt
        if self._is_taken_over(result, error):
            return
        if result is not None:
            is_proxy = self.link.role == "proxy"
            if is_proxy and self._successor_request is None and not self.done:
                self._fail(
                    f"it answered `{self.method}` without having initialized its successor: is it "
                    "an agent rather than a proxy?"
                )
            else:
                self._finish(result, None)
            return
        assert error is not None
        refused = error_to_exception(error)
        text = f"{refused.message}: {refused.data}" if refused.data else refused.message
        if self.done or self._successor_request is not None:
            self._finish(None, error)
        elif refused.code == METHOD_NOT_FOUND:
            self._try_again(self._unknown(text))
        elif refused.code == INVALID_REQUEST and "version" not in text:
            self._try_again(self._unknown(text), in_new_process=True)
        else:
            self._finish(None, error)

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

    def _is_taken_over(self, result: RawMember, error: RawMember) -> bool:
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
        if self.dialect is not None:
            self.link.dialect = self.dialect
        self._successor_request = None
        self._attempt = call = InFlightRequest(self.method, self)
        params = marked(self._params) if self.dialect == "_meta" else self._params
        self.link.plain.send(self, call, self.method, params)
        if self._originator.cancelled:
            self._cancel_attempt(self._originator, call)
        self._set_deadline(trio.current_time() + self.timeout)

    def _try_again(self, reason: str, *, in_new_process: bool = False) -> None:
        """Send the initialization in the next dialect; without one, fail for this reason."""
        if not self._untried:
            self._fail(reason)
            return
        self._attempt = None
        self.dialect = self._untried.pop(0)
        if in_new_process:
            self._awaiting_process = True
            self.restart_process()
        else:
            self._send_attempt()

    def _fail(self, reason: str) -> None:
        self._attempt = None
        self.on_failed(reason)

    def _unknown(self, text: str) -> str:
        """Failure reason for a component that knows no dialect; `text` is its error."""
        if self.link.role == "agent":
            hint = "is it an agent, and does its command line ask it to speak ACP?"
        else:
            hint = "is it an agent rather than a proxy?"
        return f"it does not take `{self.method}`: {hint} It says: {text}"

    def _finish(self, result: RawMember, error: RawMember) -> None:
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
        self, call: InFlightRequest, result: RawMember, error: RawMember
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
                self._fail(self._timeout_reason())
                return

    def _timeout_reason(self) -> str:
        reason = f"it did not answer `{self.method}` within {self.timeout:g} s (start_timeout)"
        if self._untried:
            reason += "; if it only knows `_proxy/initialize`, give it `dialect: _proxy`"
        return reason
