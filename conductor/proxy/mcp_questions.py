"""Calls of MCP methods that ask the agent's MCP client something while they run.

Up to MCP 2025-11-25 a server sends requests. In 2026-07-28 it answers the call with its questions
(`input_required`), and the client repeats the call with the answers. Here the method keeps running
between the two, in the nursery of its connection, so that an author writes `await
context.elicit(…)` for both. A call that the client does not repeat is cancelled with the
connection, or when 64 newer ones wait.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from conductor.bounded_dict import BoundedDict
from conductor.errors import RequestError
from conductor.jsonrpc.messages import INVALID_PARAMS

if TYPE_CHECKING:
    from mcp.server import mcpserver

__all__ = ["Conversations", "send_request"]

_MAX_SUSPENDED: Final = 64


async def send_request(sdk: mcpserver.Context[Any, Any], request: Any, result: Any) -> Any:
    """Send a request of the SDK as a message of its own (MCP before 2026-07-28).

    Raises `RequestError` if the answer is an error.
    """
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata

    try:
        return await sdk.session.send_request(
            request, result, metadata=ServerMessageMetadata(related_request_id=sdk.request_id)
        )
    except MCPError as exc:
        raise RequestError(exc.code, exc.message, exc.data) from exc


@attrs.define(eq=False, repr=False)
class _MethodCall:
    """One call of a method, which may take several requests of the client."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _changed: trio.Event = attrs.field(factory=trio.Event)
    """Set when the method asks or ends."""
    _questions: dict[str, Any] = attrs.field(factory=dict)
    """Requests of the SDK that are not answered, by key."""
    _asked: int = 0
    _arrived: dict[str, trio.Event] = attrs.field(factory=dict)
    _answers: dict[str, Any] = attrs.field(factory=dict)
    _ended: bool = False
    _result: Any = None
    _error: Exception | None = None

    async def run(self, function: Callable[[], Awaitable[Any]]) -> None:
        with self.scope:
            try:
                self._result = await function()
            except Exception as exc:  # raised by `next_step`, in the request of the client
                self._error = exc
        self._ended = True
        self._changed.set()

    async def ask(self, request: Any) -> Any:
        """Wait for the answer to a question; called by the method."""
        self._asked += 1
        key = f"question-{self._asked}"
        self._questions[key] = request
        arrived = self._arrived[key] = trio.Event()
        self._changed.set()
        try:
            await arrived.wait()
            return self._answers.pop(key)
        finally:
            self._questions.pop(key, None)
            del self._arrived[key]

    def answer(self, answers: Mapping[str, Any]) -> None:
        for key in answers.keys() & self._questions.keys():
            del self._questions[key]
            self._answers[key] = answers[key]
            self._arrived[key].set()

    async def next_step(self) -> tuple[dict[str, Any], Any]:
        """Wait until the method asks or ends: its open questions, or none and its result. Raises
        what the method raises."""
        try:
            while not (self._questions or self._ended):
                self._changed = trio.Event()
                await self._changed.wait()
        except trio.Cancelled:
            self.scope.cancel()
            raise
        if self._error is not None:
            raise self._error
        return ({}, self._result) if self._ended else (dict(self._questions), None)


@attrs.define(eq=False, repr=False)
class Conversations:
    """The calls of one connection that may ask."""

    _nursery: trio.Nursery | None = None
    _suspended: BoundedDict[str, tuple[_MethodCall, Any]] = attrs.field(
        factory=lambda: BoundedDict(_MAX_SUSPENDED)
    )
    """Calls that wait for the client to repeat them, oldest first, with their contexts, by the
    state that the client repeats."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The life of the connection; its calls are cancelled at the end."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            yield
            nursery.cancel_scope.cancel()

    async def call(
        self,
        sdk: mcpserver.Context[Any, Any],
        make_context: Callable[[Callable[[Any, Any], Awaitable[Any]]], Any],
        function: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        """Run `function` with a context, or go on with it: return its result, or the
        `InputRequiredResult` with its questions."""
        from mcp.types import InputRequiredResult

        assert self._nursery is not None
        if sdk.request_state is None:
            conversation = _MethodCall()
            context = make_context(lambda request, _result: conversation.ask(request))
            self._nursery.start_soon(conversation.run, lambda: function(context))
        else:
            found = self._suspended.pop(sdk.request_state, None)
            if found is None:
                raise RequestError(
                    INVALID_PARAMS, "The call does not wait for an answer any more; call it again"
                )
            conversation, context = found
            context.sdk = sdk
            conversation.answer(sdk.input_responses or {})
        questions, result = await conversation.next_step()
        if not questions:
            return result
        state = os.urandom(16).hex()
        if (dropped := self._suspended.add(state, (conversation, context))) is not None:
            _, (oldest, _) = dropped
            oldest.scope.cancel()
        return InputRequiredResult(input_requests=questions, request_state=state)
