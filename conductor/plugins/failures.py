"""Exceptions raised by plugin code: contained, logged, and told to the user.

Every call into plugin code (handlers, observers, callbacks, `lifespan`, tasks) goes through
`contain_failure` or `call_plugin`. A plugin may raise any `BaseException`; none of them may end the
conductor or leave a request unanswered. Two exceptions are not failures and must propagate: a
`trio.Cancelled` of a cancelled scope around the call, and the `GeneratorExit` of a coroutine that
is being closed. A `Cancelled` that a plugin raises although no scope is cancelled is a failure like
any other.

`FailureLog` is the one place to which failures go. The user reads each in the chat, once per turn
and handler:

    [acp-conductor] Exc failed in on_text: AttributeError: 'str' object has … (exc2.py:9)

The log gets the traceback of the first, and then counts.

A failure may be the mistake of a peer: a message that does not fit the protocol, or an answer that
the handler has got. Both are compared with the schema only then, so good ones cost nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.errors import LocalProtocolError, RequestError, describe, details_are_withheld
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error, truncate
from conductor.log import Logger
from conductor.plugins.handler_call import HandlerCall, current_session
from conductor.plugins.lane import LaneRequest, LaneResponse
from conductor.plugins.plugin_code import raised_at
from conductor.proxy.base import Plugin
from conductor.proxy.conversion import invalid_params
from conductor.proxy.events import event_marks
from conductor.proxy.handlers import is_handler
from conductor.proxy.misfits import mistake_of_peer
from conductor.routing.component import ComponentHost
from conductor.schema.convert import decode
from conductor.secrets.masking import redact

__all__ = [
    "FailureListener",
    "FailureLog",
    "call_plugin",
    "contain_failure",
    "first_exception",
    "request_error_in",
    "split_failure",
]

T = TypeVar("T")

FailureListener = Callable[[BaseException, str | None], object]
"""Called with an exception of a plugin's code, and with `file:line` of the handler that raised it
or `None`. `conductor.testing` raises it in the test."""
_MAX_KINDS: Final = 100
"""Failures that are counted, by handler, exception and line."""
_MAX_CHARS: Final = 300


def split_failure(exc: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """The plugin's failure in `exc`, and the exception that must propagate; each may be None."""
    if isinstance(exc, BaseExceptionGroup):
        passing, failure = exc.split(_must_propagate)
        return failure, passing
    return (None, exc) if _must_propagate(exc) else (exc, None)


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


def request_error_in(exc: BaseException) -> RequestError | None:
    """The `RequestError` in an exception or group: trio groups what a nursery's tasks raise."""
    if isinstance(exc, RequestError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        found = [request_error_in(each) for each in exc.exceptions]
        if None not in found:
            return found[0]
    return None


def first_exception(exc: BaseException) -> BaseException:
    """The first exception of a group, at any depth; any other exception is returned as it is."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _must_propagate(exc: BaseException) -> bool:
    if isinstance(exc, trio.Cancelled):
        return trio.current_effective_deadline() == -math.inf
    return isinstance(exc, GeneratorExit) and not trio.lowlevel.in_trio_task()


class _FailedCode(NamedTuple):
    """The code that has failed."""

    function: str
    """Name of the author's function that was called."""
    shown: str
    """The same as the author knows it: `on_text`, `/notes`, `session/update`."""
    at: str
    """`notes.py:9`."""


@attrs.define(eq=False)
class FailureLog:
    """Logs and tells the exceptions of one plugin's handlers, tasks and callbacks, which end
    nothing else.

    A listener gets them instead, or as well (`logs_all`). `RequestError` raised by the handler of a
    request is its answer, and no failure.
    """

    name: str
    """Name of the component."""
    plugin: Plugin
    log: Logger
    host: ComponentHost | None = None
    """The chain of the plugin, once it belongs to one."""
    listener: FailureListener | None = None
    logs_all: bool = False
    _counts: BoundedDict[tuple[str, ...], int] = attrs.field(
        factory=lambda: BoundedDict(_MAX_KINDS), init=False
    )

    def report(
        self,
        event: str,
        exc: BaseException,
        *,
        handler: str | None = None,
        detail: str | None = None,
        tells: bool = True,
        **fields: Any,
    ) -> None:
        """Log an exception as `event`, with these fields, and tell the listener and the user.

        `detail` is what becomes of the message. Without `tells`, another part tells the user.
        """
        if self.listener is not None:
            self.listener(exc, handler)
            if not self.logs_all:
                return
        place = fields.get("method") or fields.get("task") or event
        code = self._failed_code(exc, place, handler)
        if handler is not None:
            fields["handler"] = handler
        error = type(first_exception(exc)).__name__
        self._log(event, exc, (event, code.function, error, code.at), fields)
        if tells:
            self._tell(
                self.title(exc, place, handler), fields.get("session"), detail, code.function
            )

    def title(self, exc: BaseException, place: str, handler: str | None = None) -> str:
        """The failure as one line for the user; without details for a remote client.

        `place` is the method of the message or the name of the task, if the exception was not
        raised in a function of the author; `handler` is `file:line`.
        """
        code = self._failed_code(exc, place, handler)
        title = f"{self.name} failed in {code.shown}"
        if details_are_withheld():
            return f"{title}; the server's log says why"
        cause = first_exception(exc)
        # A broken rule for authors is explained in a sentence.
        text = str(cause) if isinstance(cause, LocalProtocolError) else describe(cause)
        text = truncate(" ".join(redact(text).split()), _MAX_CHARS)
        return f"{title}: {text}" + (f" ({code.at})" if code.at else "")

    def tell_mistake(self, text: str, method: str, session: str | None, detail: str | None) -> None:
        """Tell the user of a peer's message that the plugin cannot read; it is logged already."""
        if self.listener is None or self.logs_all:
            self._tell(
                f"{self.name} cannot read it: {text}", session, detail, f"cannot read {method}"
            )

    def error_of_peer(self, handler_call: HandlerCall, failure: BaseException) -> bytes | None:
        """The raw error for the request of a handler that failed because of a peer's mistake, which
        is also logged; `None` if the failure is the plugin's."""
        item, port = handler_call.item, handler_call.port
        location = handler_call.handler.location
        if not isinstance(item, LaneResponse):
            sender = port.sender(item.method)
            problem = mistake_of_peer(
                self.plugin,
                location,
                item.method,
                item.params,
                failure,
                "params" if isinstance(item, LaneRequest) else "notification",
                sender,
            )
            if problem is not None:
                return invalid_params(item.method, problem, sender)
        return self.error_of_answerer(location, _answers(handler_call), failure)

    def error_of_answerer(
        self,
        location: str,
        answers: Iterable[tuple[InFlightRequest, bytes]],
        failure: BaseException,
    ) -> bytes | None:
        """The raw error if one of these answers does not fit the protocol, which is also logged.
        `location` is that of the handler, or the name of a task."""
        for call, raw in answers:
            answerer = _answerer(call, raw) or getattr(call.source, "source", "")
            method = call.method
            problem = mistake_of_peer(
                self.plugin, location, method, raw, failure, "result", answerer
            )
            if problem is not None:
                text = f"Invalid result of {method}: {problem}"
                text += f" (answered by {answerer}, read by {self.name})"
                return encode_error(INTERNAL_ERROR, text, {"component": answerer})
        return None

    def _tell(self, title: str, session: str | None, detail: str | None, about: str) -> None:
        if self.host is not None:
            session, once = session or current_session(), f"{self.name} {about}"
            self.host.send_notice(session, title, detail, severity="error", once=once)

    def _failed_code(self, exc: BaseException, place: str, handler: str | None) -> _FailedCode:
        frames = list(raised_at(exc))
        cause = first_exception(exc)
        leaf = list(raised_at(cause)) or frames
        if not leaf and isinstance(cause, LocalProtocolError) and cause.function is not None:
            code = cause.function.__code__  # of what it has returned
            leaf = [(code.co_name, code.co_filename, code.co_firstlineno)]
        if not leaf:  # raised by the conductor
            return _FailedCode(handler or place, place, os.path.basename(handler or ""))
        (function, *_), (_, file, line) = (frames or leaf)[0], leaf[-1]
        shown, member = function, getattr(type(self.plugin), function, None)
        if is_handler(member):
            shown = place
        for mark in event_marks(member):
            shown = f"/{mark.name_for(self.plugin)}" if mark.event == "slash" else mark.event
        return _FailedCode(function, shown, f"{os.path.basename(file)}:{line}")

    def _log(
        self, event: str, exc: BaseException, key: tuple[str, ...], fields: dict[str, Any]
    ) -> None:
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if count == 1:
            self.log.error(event, **fields, exc_info=exc)
        elif count >= 10 and str(count).strip("0") == "1":  # 10, 100, 1000 and so on
            what, function, error, at = key
            self.log.error(
                "failed again", what=what, function=function, error=error, at=at, times=count
            )


def _answers(handler_call: HandlerCall) -> Iterator[tuple[InFlightRequest, bytes]]:
    """The last result that a handler has got, and that of the message that it has forwarded."""
    state, last = handler_call.response_state, handler_call.answer
    if last is not None:
        yield last
    if state is not None and state.answer is not None and state.answer.result is not None:
        yield state.answer.call, state.answer.result


def _answerer(call: InFlightRequest, raw: bytes) -> str:
    """The component that made an answer: those that have passed it on unchanged are not."""
    while call.forwarded_as is not None and _is_same(call.forwarded_as[1], raw):
        call = call.forwarded_as[0]
    name: str = getattr(call.target, "component_name", "")
    return name


def _is_same(one: bytes, other: bytes) -> bool:
    with suppress(ValueError):
        return one == other or bool(decode(one) == decode(other))
    return False
