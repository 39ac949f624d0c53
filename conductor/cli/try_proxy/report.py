"""Human-readable report of `try`: effects of the proxy on each message.

    → session/prompt #3  "say hello"
        add_date (notes.py:12)
        changed on its way to the agent:
          + prompt[0]: {"type": "text", "text": "Today is Monday."}
    ← session/update agent_message_chunk  "hello"

An arrow to the right is a message toward the agent, one to the left toward the client. Indented
below are the functions of the proxy that ran for it, and what they did. Without such lines the
message was passed on as it was."""

from __future__ import annotations

import dis
import inspect
import json
import linecache
import os
import sys
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final, Literal

import attrs
import trio

import conductor
from conductor.cli.terminal_text import Style, printable, shown_path, styled
from conductor.errors import describe
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.plugins.handler_call import HandlerCall, current_handler_call
from conductor.plugins.lane import LaneNotification, LaneRequest, LaneResponse
from conductor.plugins.observed_plugin import PassedMessage
from conductor.proxy.base import Plugin
from conductor.tracing.json_diff import json_diff, short_json, without_marks
from conductor.tracing.message_text import message_text

__all__ = ["Report", "failure_lines", "tell_started_functions"]

_PACKAGE: Final = os.path.dirname(conductor.__file__)
_LIBRARIES: Final = (os.path.dirname(os.__file__), os.path.dirname(trio.__file__))
_MAX_DIFF: Final = 20
_ARROWS: Final = {"agent": "→", "client": "←"}


@attrs.define(eq=False)
class Report:
    """Writes the report of one proxy. `write` takes a line without its end."""

    write: Callable[[str], None]
    coloured: bool = False
    failures: int = 0
    """Number of exceptions of the proxy."""
    _numbers: dict[InFlightRequest, int] = attrs.field(factory=dict, init=False)
    _unhandled: deque[tuple[str, bytes | None]] = attrs.field(factory=deque, init=False)
    """Notifications without a handler that the proxy has not passed on yet."""
    _senders: dict[InFlightRequest, HandlerCall] = attrs.field(factory=dict, init=False)
    """The handlers that have sent requests, until these are answered."""
    _forwarded: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests that are the handled one, forwarded."""
    _responses: dict[HandlerCall, list[PassedMessage]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    """Responses that handlers have not gone on with yet, with the names of their proxies."""
    _answers: dict[HandlerCall, PassedMessage] = attrs.field(factory=dict, init=False)
    """The last response to a forwarded request."""
    _told: set[HandlerCall] = attrs.field(factory=set, init=False)
    """Handlers that have forwarded their notification."""
    _received: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests to the proxy."""
    _answered: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests with a response from behind the proxy."""
    _tasks: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests of tasks."""
    _observed: deque[PassedMessage] = attrs.field(factory=deque, init=False)
    """Messages that an observer has seen, and the proxy has not passed on yet."""
    _tool_calls: set[InFlightRequest] = attrs.field(factory=set, init=False)
    """Requests that call a tool."""

    # -- PluginObserver ----------------------------------------------------------------------------

    def received(self, message: PassedMessage) -> None:
        if message.kind == "notification" and not message.is_handled:
            self._unhandled.append((message.method, message.payload))
        if message.call is None:
            return
        if message.kind == "request":
            self._received.add(message.call)
            return
        self._answered.add(message.call)
        sender = self._senders.pop(message.call, None)
        if sender is not None:
            self._responses[sender].append(message)
            if message.call in self._forwarded:
                self._answers[sender] = message
        elif message.call in self._tasks:
            self._tasks.remove(message.call)
            self._show(message)

    def handler_started(self, handler_call: HandlerCall) -> None:
        item = handler_call.item
        toward: Literal["agent", "client"] = _receiver(handler_call)
        match item:
            case LaneRequest():
                message = PassedMessage("request", toward, item.method, item.params, item.call)
            case LaneNotification():
                message = PassedMessage("notification", toward, item.method, item.params)
            case LaneResponse(call=call):
                payload, is_error = item.result or item.error, item.error is not None
                message = PassedMessage("response", toward, call.method, payload, call, is_error)
        self._show(message)
        if handler_call.is_observer_call:
            self._observed.append(message)

    def sent(self, message: PassedMessage, handler_call: HandlerCall | None) -> None:
        if handler_call is None:
            if self._is_passed_on(message):
                self._show(message, "text")
            elif message.kind == "response" and not self._hides(message):
                self._answers_itself(message)
            elif not self._hides(message):
                if message.kind == "request" and message.call is not None:
                    self._tasks.add(message.call)
                self._note(f"sent to the {message.toward}: {self._title(message)}")
            return
        self._goes_on(handler_call)
        if self._hides(message):
            return
        item = handler_call.item
        forwards = (
            handler_call.forwarded
            and item is not None
            and message.toward == _receiver(handler_call)
        )
        match message.kind:
            case "request":
                assert message.call is not None
                self._senders[message.call] = handler_call
                if forwards and type(item) is LaneRequest and item.method == message.method:
                    self._numbers[message.call] = self._number(item.call)
                    self._forwarded.add(message.call)
                    self._show_change(item.params, message)
                    return
            case "notification":
                if (
                    forwards
                    and type(item) is LaneNotification
                    and item.method == message.method
                    and _update_kind(item.params) == _update_kind(message.payload)
                    and handler_call not in self._told
                ):
                    self._told.add(handler_call)
                    self._show_change(item.params, message)
                    return
            case "response":
                answer = self._answers.pop(handler_call, None)
                if answer is not None and answer.is_error == message.is_error:
                    self._show_change(answer.payload, message)
                else:
                    self._answers_itself(message)
                return
        self._note(f"sent to the {message.toward}: {self._title(message)}")

    def handler_returned(self, handler_call: HandlerCall) -> None:
        self._goes_on(handler_call)
        item = handler_call.item
        if handler_call.is_observer_call:
            return
        if (
            type(item) is LaneNotification
            and not handler_call.forwarded
            and not item.method.startswith("mcp/")
        ):
            self._note(f"dropped, the {_receiver(handler_call)} does not get it")
        self._told.discard(handler_call)

    # -- functions and failures --------------------------------------------------------------------

    def function_started(self, name: str, place: str) -> None:
        self._goes_on(current_handler_call.get())
        self.line(f"    {name} ({place})", "function")

    def failed(self, exc: BaseException, _handler: str | None = None) -> None:
        """Show an exception of the proxy, with the lines of its own files that raised it."""
        self.failures += 1
        self._goes_on(current_handler_call.get())
        for line in failure_lines(exc):
            self.line(f"    {line}", "error")

    def line(self, text: str, style: Style = "text") -> None:
        self.write(styled(printable(text), style if self.coloured else "text"))

    # ----------------------------------------------------------------------------------------------

    def _show(self, message: PassedMessage, style: Style = "message") -> None:
        """Show a message that the proxy has taken from its lane, once."""
        for seen in self._observed:
            if (seen.kind, seen.call, seen.method, seen.payload) == (
                message.kind,
                message.call,
                message.method,
                message.payload,
            ):
                self._observed.remove(seen)
                return
        if self._hides(message):
            return
        if message.kind == "request" and message.method == "session/prompt":
            self.write("")
        self.line(f"{_ARROWS[message.toward]} {self._title(message)}", style)

    def _goes_on(self, handler_call: HandlerCall | None) -> None:
        """Show the responses that a handler has waited for."""
        if handler_call is not None:
            for message in self._responses.pop(handler_call, ()):
                self._show(message)

    def _note(self, text: str) -> None:
        self.line(f"    {text}", "note")

    def _answers_itself(self, message: PassedMessage) -> None:
        what = "error" if message.is_error else "answer"
        shown = short_json(without_marks(_decoded(message.payload)))
        self._note(f"{what} of the proxy to {message.method}{self._suffix(message.call)}: {shown}")

    def _show_change(self, before: bytes | None, message: PassedMessage) -> None:
        if before == message.payload:
            return
        lines = json_diff(without_marks(_decoded(before)), without_marks(_decoded(message.payload)))
        if not lines:
            return
        self._note(f"changed on its way to the {message.toward}:")
        for line in lines[:_MAX_DIFF]:
            self.line(f"      {line}", "-" if line.startswith("-") else "+")
        if len(lines) > _MAX_DIFF:
            self._note(f"  and {len(lines) - _MAX_DIFF} more differences")

    def _is_passed_on(self, message: PassedMessage) -> bool:
        """Whether this is a message without a handler; records that it was passed on."""
        if message.kind == "request":
            return message.call in self._received
        if message.kind == "response":
            return message.call in self._answered
        key = (message.method, message.payload)
        if key not in self._unhandled:
            return False
        self._unhandled.remove(key)
        return True

    def _hides(self, message: PassedMessage) -> bool:
        """Whether a message is of the connection of a tool server, and no call of a tool."""
        if not message.method.startswith("mcp/"):
            return False
        if message.kind == "response":
            return message.call not in self._tool_calls
        calls = message.method == "mcp/message" and _inner_method(message.payload) == "tools/call"
        if calls and message.call is not None:
            self._tool_calls.add(message.call)
        return not calls

    def _number(self, call: InFlightRequest | None) -> int:
        assert call is not None
        return self._numbers.setdefault(call, len(set(self._numbers.values())) + 1)

    def _suffix(self, call: InFlightRequest | None) -> str:
        return "" if call is None else f" #{self._number(call)}"

    def _title(self, message: PassedMessage) -> str:
        """A message in one line: method, number, and the essence of its payload."""
        number = self._suffix(message.call)
        match message.kind:
            case "response":
                what = "error of" if message.is_error else "answer to"
                title = f"{what} {message.method}{number}"
            case _:
                title = message.method + number
        value = _decoded(message.payload)
        details = message_text(message.kind, message.method, value, is_error=message.is_error)
        return f"{title} {details}" if details else title


def failure_lines(exc: BaseException) -> list[str]:
    """Human-readable exception: its text, and the lines of code outside of the conductor."""
    if isinstance(exc, SyntaxError) and exc.filename is not None:
        _, *lines = "".join(traceback.format_exception_only(exc)).splitlines()
        return [f"{shown_path(exc.filename)}:{exc.lineno}", *lines]
    lines = [describe(exc)]
    if isinstance(exc, BaseExceptionGroup):
        inner = [line for each in exc.exceptions for line in failure_lines(each)]
        return lines + [f"  {line}" for line in inner]
    for frame in traceback.extract_tb(exc.__traceback__):
        file = frame.filename
        if file.startswith((_PACKAGE, "<", *_LIBRARIES)):
            continue
        code = (frame.line or linecache.getline(file, frame.lineno or 0)).strip()
        lines.append(f"  {shown_path(file)}:{frame.lineno} in {frame.name}: {code}")
    for note in getattr(exc, "__notes__", ()):
        lines.append(f"  {note}")
    return lines


def _receiver(handler_call: HandlerCall) -> Literal["agent", "client"]:
    """The direction of the message that a handler handles."""
    return "agent" if handler_call.port.source == "client" else "client"


def _inner_method(payload: bytes | None) -> str | None:
    value = _decoded(payload)
    method = value.get("method") if isinstance(value, Mapping) else None
    return method if isinstance(method, str) else None


def _update_kind(payload: bytes | None) -> object:
    """The kind of a session update. One of another kind, such as the text that a filter held back
    until a tool call, is a message of the proxy, not the changed message."""
    value = _decoded(payload)
    update = value.get("update") if isinstance(value, Mapping) else None
    return update.get("sessionUpdate") if isinstance(update, Mapping) else None


def _decoded(payload: bytes | None) -> Any:
    return None if payload is None else json.loads(payload)


@contextmanager
def tell_started_functions(
    cls: type[Plugin], started: Callable[[str, str], None]
) -> Iterator[None]:
    """Call `started` with name and `file:line` when a handler or tool of the class begins.

    Functions of the conductor's own classes are not told. The interpreter's profile function is
    used, since decorators have kept the functions themselves: nothing else is to be wrapped.
    """
    starts = dict(_first_instructions(cls))

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code in starts and frame.f_lasti <= starts[code]:
            started(code.co_name, f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}")

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _first_instructions(cls: type[Plugin]) -> Iterator[tuple[CodeType, int]]:
    """The code of each function, with the offset at which its body begins: a coroutine that goes on
    after an `await` is behind it."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "conductor":
            continue
        for function in vars(base).values():
            marked = any(name.startswith("__acp_") for name in getattr(function, "__dict__", ()))
            if marked and inspect.iscoroutinefunction(function):
                code = inspect.unwrap(function).__code__
                body = (each for each in dis.get_instructions(code) if each.opname == "RESUME")
                yield code, next(body).offset
