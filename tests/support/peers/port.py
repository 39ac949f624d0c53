"""Peers without I/O: ports and a receiver that record what they get, and a plugin between two.

What a port heard is a list of tuples, in order, that begin with "request", "notification" or
"answer".
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.jsonrpc.codec import Malformed
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload, encode_error
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on
from conductor.routing.component import ComponentHost
from conductor.routing.port import Port, connect_ports
from conductor.transport.base import Transport
from conductor.transport.io_loop import Flusher as LoopFlusher
from conductor.transport.io_loop import ReadGate
from support.raw_json import dumps

Heard: TypeAlias = list[tuple[Any, ...]]


def cancel(id: Any) -> dict[str, Any]:
    """The cancellation of a request, without `jsonrpc`."""
    return {"method": "$/cancel_request", "params": {"requestId": id}}


# -- ports -------------------------------------------------------------------------------------


class Neighbour(Port):
    """A port that keeps what it gets, with payloads as their bytes.

    ("request", method, params), ("notification", method, params), ("answer", method, result,
    error), ("cancel", method).
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: Heard = []
        self.asked: list[InFlightRequest] = []
        """Requests to it; an `End` takes out those that it answers."""

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        call.target = self
        self.asked.append(call)
        self.hear("request", method, self._payload(params))
        if call.cancelled:
            self.cancel(call)

    def notify(self, method: str, params: Payload | None) -> None:
        self.hear("notification", method, self._payload(params))

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self.hear("answer", call.method, self._payload(result), self._payload(error))

    def cancel(self, call: InFlightRequest) -> None:
        self.hear("cancel", call.method)

    def hear(self, *what: Any) -> None:
        self.heard.append(what)

    def _payload(self, payload: Payload | None) -> Any:
        return None if payload is None else bytes(payload)


class End(Neighbour):
    """The client or the agent beside a plugin: reads payloads, and sends.

    ("answer", name, result or error code): a request that it sent is known by its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.cancelled: list[str] = []
        """Methods of requests to it that were cancelled."""
        self._names: dict[InFlightRequest, Any] = {}

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        call.answered = True
        value = self._payload(result) if error is None else self._payload(error)["code"]
        self.hear("answer", self._names[call], value)

    def cancel(self, call: InFlightRequest) -> None:
        self.cancelled.append(call.method)

    def _payload(self, payload: Payload | None) -> Any:
        return None if payload is None else json.loads(bytes(payload))

    def send(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.neighbour.notify(method, None if params is None else dumps(params))

    def ask(self, method: str, params: Any = None, name: Any = None) -> InFlightRequest:
        call = InFlightRequest(method, self)
        self._names[call] = name or method
        self.neighbour.request(call, method, None if params is None else dumps(params))
        return call

    def answer(self, result: Any = None, *, which: int = 0) -> None:
        call = self.asked.pop(which)
        self.neighbour.respond(call, dumps({} if result is None else result), None)

    def refuse(self, code: int, message: str = "no", *, which: int = 0) -> None:
        call = self.asked.pop(which)
        self.neighbour.respond(call, None, encode_error(code, message))


# -- a connection without I/O ------------------------------------------------------------------


class ListTransport:
    """Accepts everything (or `room` bytes) and records it."""

    def __init__(self) -> None:
        self.written = b""
        self.room = 10**12
        self.broken = False
        self.writing_closed = False

    async def receive(self) -> bytes:
        raise NotImplementedError

    def write_now(self, pieces: Iterable[bytes | memoryview]) -> int:
        if self.broken:
            raise ConnectionClosed("broken")
        data = b"".join(pieces)[: self.room]
        self.room -= len(data)
        self.written += data
        return len(data)

    async def wait_writable(self) -> None:
        raise NotImplementedError

    def close_writing(self) -> None:
        self.writing_closed = True

    def close(self) -> None:
        self.close_writing()

    def messages(self) -> list[Any]:
        """What was written since the last time, as JSON."""
        written, self.written = self.written, b""
        return [json.loads(line) for line in written.splitlines()]


class Flusher:
    """Flushes when told to."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []
        self.flush_soon = self.due.append

    def flush(self) -> None:
        while self.due:
            self.due.pop(0)()


class Desk:
    """A receiver that keeps what its connection gets; the test answers requests.

    ("request", id, method, params), ("notification", method, params), ("answer", method, result,
    error), ("malformed answer", method).
    """

    def __init__(self, **options: Any) -> None:
        self.transport = ListTransport()
        self.flusher = Flusher()
        self.heard: Heard = []
        self.asked: list[InFlightRequest] = []
        self.malformed: list[Malformed] = []
        transport = cast(Transport, self.transport)  # all that a connection uses of one
        self.connection = Connection(transport, self, self.flusher, **options)

    def feed(self, *lines: bytes) -> None:
        self.connection.feed(b"".join(line + b"\n" for line in lines))

    def replies(self) -> list[Any]:
        self.flusher.flush()
        return self.transport.messages()

    # -- Receiver ------------------------------------------------------------------------------

    def on_request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.asked.append(call)
        self.heard.append(("request", call.source_id, method, _bytes(params)))

    def on_notification(self, method: str, params: Payload | None) -> None:
        self.heard.append(("notification", method, _bytes(params)))

    def on_notifications(self, run: NotificationBatch) -> None:
        assert len(run.params) > 1
        for each in run.params:
            self.on_notification(run.method, each)

    def on_response(
        self, call: InFlightRequest, result: Payload | None, error: Payload | None
    ) -> None:
        assert (result is None) != (error is None)
        self.heard.append(("answer", call.method, _bytes(result), _bytes(error)))

    def on_malformed(self, frame: Malformed, call: InFlightRequest | None) -> None:
        self.malformed.append(frame)
        if call is not None:
            self.heard.append(("malformed answer", call.method))


def client(**options: Any) -> Desk:
    """A connection to a client: malformed lines are answered."""
    return Desk(answers_malformed=True, **options)


def component(**options: Any) -> Desk:
    """A connection to a component: malformed lines are only counted."""
    return Desk(answers_malformed=False, **options)


def send(desk: Desk, method: str = "m") -> int:
    """Send a request without params to the peer; returns its id."""
    return desk.connection.open(InFlightRequest(method, source=Neighbour()))


def _bytes(payload: Payload | None) -> bytes | None:
    return None if payload is None else bytes(payload)


# -- a plugin between two ends -----------------------------------------------------------------


@attrs.define(eq=False)
class Host:
    """What a plugin uses of the chain."""

    flusher: LoopFlusher = attrs.field(factory=LoopFlusher)
    wait_for_share: Callable[[], Awaitable[None]] | None = None
    limit: int = 1 << 20
    failures: list[Any] = attrs.field(factory=list)
    notices: list[tuple[str | None, str, str | None]] = attrs.field(factory=list)

    def edge_read_gate(self) -> ReadGate:
        return ReadGate(self.flusher, lambda: 0)

    def component_failed(self, component: Any, error: Any) -> None:
        self.failures.append(error)

    def send_notice(
        self, session: str | None, title: str, detail: str | None = None, **_: object
    ) -> None:
        self.notices.append((session, title, detail))


@attrs.define(eq=False)
class Hop:
    component: PluginComponent
    client: End
    agent: End
    host: Host
    settle = staticmethod(wait_all_tasks_blocked)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        await self.component.run()
        self.ended.set()


@asynccontextmanager
async def hop(plugin: Proxy, end: type[End] = End, host: Host | None = None) -> AsyncIterator[Hop]:
    """Run the plugin; at the end it is stopped as at the end of a chain."""
    component = PluginComponent("hop", plugin, "proxy", start_timeout=30)
    made = Hop(component, end("client"), end("agent"), host or Host())
    connect_ports(made.client, component.client_port)
    assert component.agent_port is not None
    connect_ports(component.agent_port, made.agent)
    component.prepare(cast(ComponentHost, made.host))
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await wait_all_tasks_blocked()
        try:
            yield made
        except BaseException as exc:
            failure = exc
        component.kill()
    if failure is not None:
        raise failure


@attrs.define(eq=False)
class Scripted(Proxy):
    """A proxy that gives each message `_x` of a peer to the function of that peer."""

    from_client: Any = None
    from_agent: Any = None
    log: list[Any] = attrs.field(factory=list)
    """The member `n` of each message, in the order of handling."""

    @on("_x", source="client")
    async def _client(self, params: Any, forward: Any) -> Any:
        self.log.append(params["n"])
        return await self.from_client(self, params, forward)

    @on("_x", source="agent")
    async def _agent(self, params: Any, forward: Any) -> Any:
        self.log.append(params["n"])
        return await self.from_agent(self, params, forward)


async def forward_unchanged(self: Scripted, params: Any, forward: Any) -> Any:
    """A function for `Scripted`."""
    return await forward()
