"""Failures of handlers that are the mistake of a peer: a message that does not fit the protocol, or
an answer that the handler has got.

In: the call of a handler, and the exception that it raised. Out: the error that names the peer and
the part that does not fit, or `None` if the failure is the plugin's. Messages and answers are
compared with the schema only here, so good ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import INTERNAL_ERROR, encode_error
from conductor.plugins.handler_call import HandlerCall
from conductor.plugins.lane import LaneRequest, LaneResponse
from conductor.proxy.conversion import invalid_params
from conductor.proxy.misfits import mistake_of_answerer, mistake_of_sender
from conductor.schema.convert import decode

__all__ = ["error_of_answerer", "error_of_peer"]


def error_of_peer(
    plugin: Any, name: str, handler_call: HandlerCall, failure: BaseException
) -> bytes | None:
    """The raw error for the request of a handler that failed because of a peer's mistake, which is
    also logged. `name` is that of the plugin as a component."""
    item, port = handler_call.item, handler_call.port
    location = handler_call.handler.location
    if not isinstance(item, LaneResponse):
        sender = port.sender(item.method)
        problem = mistake_of_sender(
            plugin,
            location,
            item.method,
            item.params,
            failure,
            is_request=isinstance(item, LaneRequest),
            sender=sender,
        )
        if problem is not None:
            return invalid_params(item.method, problem, sender)
    return error_of_answerer(plugin, name, location, _answers(handler_call), failure)


def error_of_answerer(
    plugin: Any,
    name: str,
    location: str,
    answers: Iterable[tuple[InFlightRequest, bytes]],
    failure: BaseException,
) -> bytes | None:
    """The raw error if one of these answers does not fit the protocol, which is also logged.
    `location` is that of the handler, or the name of a task."""
    for call, raw in answers:
        answerer = _answerer(call, raw) or getattr(call.source, "source", "")
        problem = mistake_of_answerer(plugin, location, call.method, raw, failure, answerer)
        if problem is not None:
            text = f"Invalid result of {call.method}: {problem}"
            text += f" (answered by {answerer}, read by {name})"
            return encode_error(INTERNAL_ERROR, text, {"component": answerer})
    return None


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
