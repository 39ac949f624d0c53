"""`RecordedAgent`: plays the agent's part of a recorded conversation."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import attrs
import trio

from conductor.background_tasks import background_tasks
from conductor.errors import ConnectionClosed, RequestError
from conductor.peer import MessageHandler
from conductor.testing.fakes import FakeComponent
from conductor.testing.recording import PROJECT, RecordedMessage, Recording

__all__ = ["RecordedAgent"]

_METHOD_NOT_FOUND = -32601


@attrs.define(eq=False)
class RecordedAgent(FakeComponent):
    """An agent that answers as in a recording: the name of one of the package, or a path.

        async with acp_chain(MyProxy(), RecordedAgent("qwen-code")) as client:

    Each request is answered as the next one of its method in the recording, with all that the agent
    sent until the client's next request; what a prompt says does not matter. The agent waits for
    the client where it did so in the recording: for the answers to its own requests, and for a
    `session/cancel`. It does not depend on the answers: a permission that is denied is used as in
    the recording. A request that the recording does not have gets -32601. The working directory of
    the first session replaces that of the recording.
    """

    recording: str | os.PathLike[str]
    handlers: dict[str, MessageHandler] = attrs.field(factory=dict, kw_only=True)
    name: str = attrs.field(default="recorded-agent", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="agent", init=False)
    _messages: list[RecordedMessage] = attrs.field(init=False)
    _position: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    """By method: the number of its requests so far."""
    _cwd: str | None = attrs.field(default=None, init=False)
    _answers: dict[Any, trio.Event] = attrs.field(factory=dict, init=False)
    """Set when the client has answered the agent's request, by the id in the recording."""
    _notified: dict[str, trio.Event] = attrs.field(
        factory=lambda: defaultdict(trio.Event), init=False
    )
    """Set by a notification of the client, by method."""
    _tasks: trio.Nursery = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._messages = list(Recording.load(self.recording).messages)
        for message in self._messages:
            if message.sender == "client" and message.kind == "request":
                self.handlers.setdefault(message.method, partial(self._answer, message.method))
            elif message.sender == "client" and message.kind == "notification":
                self.handlers.setdefault(message.method, partial(self._notify, message.method))

    async def _run_peer(self) -> None:
        async with background_tasks() as self._tasks:
            await super()._run_peer()

    async def _answer(self, method: str, params: Any) -> Any:
        if self._cwd is None and isinstance(params, dict) and isinstance(params.get("cwd"), str):
            self._cwd = params["cwd"]
            if self._cwd != PROJECT:
                self._messages = list(Recording.load(self.recording, cwd=self._cwd).messages)
        asked, messages = self._next(method)
        for index, message in enumerate(messages):
            if message.kind == "response" and message.id == asked.id:
                self._tasks.start_soon(self._play, messages[index + 1 :])
                if message.is_error:
                    error = message.payload
                    raise RequestError(error["code"], error["message"], error.get("data"))
                return message.payload
            await self._play([message])
        raise RequestError(_METHOD_NOT_FOUND, f"{self.name}: {method} has no answer")

    def _next(self, method: str) -> tuple[RecordedMessage, Sequence[RecordedMessage]]:
        """The next request of a method, and the messages from it to the client's next request."""
        starts = [
            index
            for index, each in enumerate(self._messages)
            if each.kind == "request" and each.sender == "client"
        ]
        places = [index for index in starts if self._messages[index].method == method]
        number, self._position[method] = self._position[method], self._position[method] + 1
        if number >= len(places):
            count = f"{number} of them" if number else "none"
            problem = f"the recording {Recording.load(self.recording).name} has {count}"
            raise RequestError(_METHOD_NOT_FOUND, f"{method}: {problem}")
        start = places[number]
        end = next((index for index in starts if index > start), len(self._messages))
        return self._messages[start], self._messages[start + 1 : end]

    async def _play(self, messages: Sequence[RecordedMessage]) -> None:
        """Send the agent's messages, and wait for the client's."""
        for message in messages:
            match message.sender, message.kind:
                case "agent", "notification":
                    self.endpoint.notify(message.method, message.payload)
                case "agent", "request":
                    self._answers[message.id] = trio.Event()
                    await self._tasks.start(self._ask, message)
                case "client", "response":
                    await self._wait(self._answers[message.id])
                case "client", "notification":
                    await self._wait(self._notified[message.method])
                    del self._notified[message.method]

    async def _ask(
        self,
        message: RecordedMessage,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        task_status.started()  # the starter goes on after the request is written
        try:
            await self.endpoint.request(message.method, message.payload)
        except (RequestError, ConnectionClosed):
            pass
        finally:
            self._answers[message.id].set()

    def _notify(self, method: str, params: Any) -> None:
        self._notified[method].set()

    async def _wait(self, event: trio.Event) -> None:
        """Wait for an event, or for the end of the connection."""

        async def stop_after(each: trio.Event) -> None:
            await each.wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_after, event)
            nursery.start_soon(stop_after, self.endpoint.ended)
