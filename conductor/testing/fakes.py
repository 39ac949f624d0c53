"""Fakes at the two ends of a chain, and between them: scripted, and with a memory.

They are peers on a wire, not plugins, so a test sees what a real program would see, byte for byte,
and can do what a real program might: answer twice, answer rubbish, say nothing, hang up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
import trio

from conductor.client import Attached, Client
from conductor.components.base import Component, Host
from conductor.components.initialization import Initialization
from conductor.connection.calls import Call
from conductor.connection.connection import Connection
from conductor.connection.pump import pump, write_backlog
from conductor.endpoint import Endpoint, Handler, background
from conductor.errors import ComponentExited, RequestError, StartError
from conductor.messages import (
    CANCEL,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    error_of,
    notification_pieces,
    request_pieces,
)
from conductor.routing.envelope import (
    DIALECTS,
    ENVELOPES,
    INITS,
    Dialect,
    unwrap,
    wrap_notification,
    wrap_request,
)
from conductor.routing.handshake import Handshake
from conductor.routing.sides import Side
from conductor.routing.wire import Wire
from conductor.testing.transcript import Transcript
from conductor.transport.memory import MemoryTransport, memory_pair

__all__ = ["FakeAgent", "FakeClient", "FakeComponent", "FakeProxy", "Step", "Turn"]

Step: TypeAlias = str | Mapping[str, Any] | RequestError | Callable[[str], Awaitable[None]]
"""A part of a scripted turn: text to say, an update to send, the answer to the prompt (with
`stopReason`, or an error to answer with), or a function to await, which gets the session id."""

Turn: TypeAlias = Sequence[Step]

FULL_CAPABILITIES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@attrs.define(eq=False)
class FakeClient(Client):
    """A client that keeps what it hears.

    It has all capabilities but no handlers, save one: it picks the first option of every
    `session/request_permission`. Put others into `handlers`.
    """

    transcript: Transcript = attrs.field(factory=Transcript, init=False)
    attached: Attached[FakeClient] = attrs.field(init=False)
    """The chain, and how it ended."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.tap = self.transcript
        self.handlers.setdefault("session/request_permission", _first_option)

    async def initialize(
        self,
        *,
        version: int = 1,
        capabilities: Mapping[str, Any] | None = None,
        name: str = "fake-client",
    ) -> dict[str, Any]:
        if capabilities is None:
            capabilities = FULL_CAPABILITIES if version == 1 else {}
        return await super().initialize(version=version, capabilities=capabilities, name=name)


def _first_option(params: Any) -> dict[str, Any]:
    option = params["options"][0]["optionId"]
    return {"outcome": {"outcome": "selected", "optionId": option}}


@attrs.define(eq=False)
class FakeComponent(Component):
    """A component that is played by the test, at the other end of a memory pair.

    Requests are answered by `handlers`, those without one -32601; `endpoint` says things of its
    own. Everything that arrives is in `transcript`, in order, across restarts.
    """

    name: str
    role: Literal["proxy", "agent"]
    handlers: dict[str, Handler] = attrs.field(factory=dict)
    dialect: Dialect | None = attrs.field(default=None, kw_only=True)
    """As a chain file would fix it; None: detect."""
    start_timeout: float = attrs.field(default=30.0, kw_only=True)
    transcript: Transcript = attrs.field(factory=Transcript, init=False)
    starts: int = attrs.field(default=0, init=False)
    """How often it was started."""
    endpoint: Endpoint = attrs.field(init=False)
    """The component's end, once it was started."""
    wire: Wire = attrs.field(init=False)
    """The conductor's end."""
    initialization: Initialization = attrs.field(init=False)
    _host: Host = attrs.field(init=False)
    _again: bool = attrs.field(default=False, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _finished: trio.Event = attrs.field(init=False)
    _ended: trio.Event = attrs.field(init=False)

    def hang_up(self) -> None:
        """End as a program would that crashes."""
        self.endpoint.transport.close()

    def new_endpoint(self, transport: MemoryTransport) -> Endpoint:
        """The component's end of a fresh connection."""
        return Endpoint(transport, self.handlers)

    # -- Component ---------------------------------------------------------------------------------

    @property
    def client_side(self) -> Side:
        return self.wire.plain

    @property
    def agent_side(self) -> Side | None:
        return self.wire.wrapped

    def prepare(self, host: Host) -> None:
        self._host = host
        self._again = self._stopping = self._failed = False
        self._finished, self._ended = trio.Event(), trio.Event()
        self.wire = Wire(self.name, self.role, lambda event, detail: None)
        self.wire.init = self.initialization = Initialization(
            self.wire,
            Handshake(self.role, self.dialect),
            self.start_timeout,
            failed=self._fail_start,
            restart=self._start_again,
        )
        self._start()

    async def run(self) -> None:
        try:
            async with background() as nursery:
                nursery.start_soon(self.initialization.watch)
                await self._live()
                while self._again:
                    self._again = False
                    self._start()
                    await self._live()
        finally:
            self._finished.set()
            self._ended.set()

    def close_input(self) -> None:
        self._stopping = True
        if self.wire.connection is not None:
            self.wire.connection.close_writing()

    async def wait_finished(self) -> None:
        await self._finished.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._stopping = True
        self._cut()

    def backlog(self) -> int:
        return 0 if self.wire.connection is None else self.wire.connection.outbox.size

    # ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = memory_pair()
        self.starts += 1
        self.endpoint = self.new_endpoint(theirs)
        self.endpoint.tap = self.transcript
        self.wire.connection = Connection(
            ours, self.wire, self._host.flusher, limits=self._host.limits
        )
        self.initialization.connected()

    async def _live(self) -> None:
        connection = self.wire.connection
        assert connection is not None
        async with background() as nursery:
            nursery.start_soon(write_backlog, connection, self._host.flusher)
            nursery.start_soon(_play, self.endpoint)
            await pump(connection, self._host.flusher, self._host.gate(self))
            self._finished.set()
        self._gone()

    def _gone(self) -> None:
        starting = not self.initialization.done
        if starting and not self._stopping and not self._failed and self.initialization.closed():
            self.wire.disconnect(error_of(StartError(self.name, "it hung up")))
            return
        error: StartError | ComponentExited
        if starting:
            error = StartError(self.name, "it hung up before it was initialized")
        else:
            error = ComponentExited(self.name, "hung up")
        self.wire.disconnect(error_of(error))
        if not self._stopping:
            self._fail(error)

    def _start_again(self) -> None:
        self._again = True
        self._cut()

    def _cut(self) -> None:
        if self.wire.connection is not None:
            self.wire.connection.transport.close()

    def _fail_start(self, reason: str) -> None:
        self._fail(StartError(self.name, reason))

    def _fail(self, error: StartError | ComponentExited) -> None:
        if not self._failed:
            self._failed = True
            self._host.component_failed(self, error)


async def _play(endpoint: Endpoint) -> None:
    """Live as a well-behaved program: at the end of the input, finish what was begun, and leave."""
    async with endpoint.open():
        await endpoint.ended.wait()
        await endpoint.wait_idle()
        endpoint.connection.flush()


@attrs.define(eq=False)
class FakeAgent(FakeComponent):
    """An agent that follows a script: `turns`, one for each prompt; further ones say nothing.

    `handlers` may replace any of its answers, and add others.
    """

    handlers: dict[str, Handler] = attrs.field(factory=dict)
    name: str = attrs.field(default="fake-agent", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="agent", init=False)
    turns: list[Turn] = attrs.field(factory=list, kw_only=True)
    capabilities: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    _sessions: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.handlers = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/prompt": self._prompt,
            **self.handlers,
        }

    def say(self, session: str, text: str) -> None:
        content = {"type": "text", "text": text}
        self.update(session, {"sessionUpdate": "agent_message_chunk", "content": content})

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        self.endpoint.notify("session/update", {"sessionId": session, "update": update})

    def _initialize(self, params: Any) -> dict[str, Any]:
        version = params.get("protocolVersion", 1)
        if version == 1:
            return {"protocolVersion": 1, "agentCapabilities": dict(self.capabilities)}
        info = {"name": self.name, "version": "0"}
        return {"protocolVersion": 2, "info": info, "capabilities": dict(self.capabilities)}

    def _new_session(self, params: Any) -> dict[str, Any]:
        self._sessions += 1
        return {"sessionId": f"session-{self._sessions}"}

    async def _prompt(self, params: Any) -> Mapping[str, Any]:
        session = params["sessionId"]
        for step in self.turns.pop(0) if self.turns else ():
            match step:
                case str():
                    self.say(session, step)
                case RequestError():
                    raise step
                case Mapping() if "stopReason" in step:
                    return step
                case Mapping():
                    self.update(session, step)
                case _:
                    await step(session)
        return {"stopReason": "end_turn"}


@attrs.define(eq=False)
class FakeProxy(FakeComponent):
    """A proxy that passes on whatever `handlers` has no entry for, byte for byte.

    A handler answers in place of whoever the message was for; `toward_agent` and `toward_client`
    send requests of its own.
    """

    handlers: dict[str, Handler] = attrs.field(factory=dict)
    name: str = attrs.field(default="fake-proxy", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="proxy", init=False)
    speaks: Dialect = attrs.field(default=DIALECTS[0], kw_only=True)

    async def toward_agent(self, method: str, params: Any = None) -> Any:
        envelope = {"method": method, "params": params}
        return await self.endpoint.request(f"{self.speaks}/successor", envelope)

    async def toward_client(self, method: str, params: Any = None) -> Any:
        return await self.endpoint.request(method, params)

    def new_endpoint(self, transport: MemoryTransport) -> Endpoint:
        return _Passing(transport, self.handlers, speaks=self.speaks)


@attrs.define(eq=False)
class _Passing(Endpoint):
    """A proxy's end of its one connection, which carries two peers."""

    speaks: Dialect = attrs.field(kw_only=True)
    _passed: dict[Call, Call] = attrs.field(factory=dict, init=False)
    """Sent on, and what it answers."""

    def on_request(self, call: Call, method: str, params: Payload | None) -> None:
        if method in self.handlers:
            super().on_request(call, method, params)
        elif method in INITS and INITS[method] != self.speaks:
            self._see_request(call, method, params)
            error = encode_error(METHOD_NOT_FOUND, "Method not found", method)
            self.connection.respond(call, None, error)
        elif method in INITS:
            self._see_request(call, method, params)
            self._pass_request(call, "initialize", params, wrapped=True)
        elif method in ENVELOPES:
            inner = unwrap(params)
            call.method = inner.method
            if inner.method in self.handlers:
                super().on_request(call, inner.method, inner.params)
                return
            self._see_request(call, inner.method, inner.params)
            self._pass_request(call, inner.method, inner.params, wrapped=False)
        else:
            self._see_request(call, method, params)
            self._pass_request(call, method, params, wrapped=True)

    def on_notification(self, method: str, params: Payload | None) -> None:
        wrapped = method not in ENVELOPES
        if not wrapped:
            inner = unwrap(params)
            method, params = inner.method, inner.params
        super().on_notification(method, params)
        if method == CANCEL or method in self.handlers:
            return
        if wrapped:
            self.connection.write(wrap_notification(self.speaks, method, params))
        else:
            self.connection.write(notification_pieces(method, params))

    def on_answer(self, call: Call, result: Payload | None, error: Payload | None) -> None:
        super().on_answer(call, result, error)
        asked = self._passed.pop(call, None)
        if asked is not None:
            self.connection.respond(asked, result, error)

    def cancel(self, call: Call) -> None:
        self.notify(CANCEL, {"requestId": call.target_id})

    def _see_request(self, call: Call, method: str, params: Payload | None) -> None:
        if self.tap is not None:
            self.tap.on_request(call, method, params)

    def _pass_request(
        self, call: Call, method: str, params: Payload | None, *, wrapped: bool
    ) -> None:
        own = Call(method, self, target=self)
        self._passed[own] = call
        call.target = _Onward(own)
        id = self.connection.open(own)
        if wrapped:
            self.connection.write(wrap_request(self.speaks, id, method, params))
        else:
            self.connection.write(request_pieces(id, method, params))

    def _cancelled_by_peer(self, params: Any) -> None:
        super()._cancelled_by_peer(params)
        call = self.connection.received.get(params["requestId"])
        if call is not None:
            call.cancel()


@attrs.frozen(eq=False)
class _Onward:
    """The target of a request that was passed on: cancelling it cancels what was sent on."""

    own: Call

    def cancel(self, call: Call) -> None:
        self.own.cancel()
