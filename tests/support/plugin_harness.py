"""A plugin between a client and an agent that the test plays."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import encode_error
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on
from conductor.routing.port import Port, connect_ports
from conductor.transport.io_loop import Flusher, ReadGate
from support.raw_json import dumps


class End(Port):
    """The client, or the agent: keeps what it gets, in order, as tuples that begin with a word.

    ("request", method, params), ("notification", method, params), ("answer", name, result or
    error code). A request that it sent is known by its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.heard: list[tuple[Any, ...]] = []
        self.asked: list[InFlightRequest] = []
        """Requests that it has not answered yet."""
        self.cancelled: list[str] = []
        """Methods of requests to it that were cancelled."""
        self._names: dict[InFlightRequest, Any] = {}

    # -- what arrives ------------------------------------------------------------------------------

    def request(self, call: InFlightRequest, method: str, params: Any) -> None:
        call.target = self
        self.asked.append(call)
        self.hear("request", method, json.loads(bytes(params)) if params is not None else None)
        if call.cancelled:
            self.cancel(call)

    def notify(self, method: str, params: Any) -> None:
        self.hear("notification", method, json.loads(bytes(params)) if params is not None else None)

    def respond(self, call: InFlightRequest, result: Any, error: Any) -> None:
        call.answered = True
        value = json.loads(bytes(error))["code"] if error is not None else json.loads(bytes(result))
        self.hear("answer", self._names[call], value)

    def cancel(self, call: InFlightRequest) -> None:
        self.cancelled.append(call.method)

    def hear(self, *what: Any) -> None:
        self.heard.append(what)

    # -- what it sends -----------------------------------------------------------------------------

    def send(self, method: str, params: Any = None) -> None:
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


@attrs.define(eq=False)
class Host:
    flusher: Flusher = attrs.field(factory=Flusher)
    wait_for_share: Callable[[], Awaitable[None]] | None = None
    limit: int = 1 << 20
    failures: list[Any] = attrs.field(factory=list)

    def edge_read_gate(self) -> ReadGate:
        return ReadGate(self.flusher, lambda: 0)

    def component_failed(self, component: Any, error: Any) -> None:
        self.failures.append(error)


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
    component.prepare(made.host)
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

    from_client: object = None
    from_agent: object = None
    log: list = attrs.field(factory=list)
    """The member `n` of each message, in the order of handling."""

    @on("_x", source="client")
    async def _client(self, params, forward):
        self.log.append(params["n"])
        return await self.from_client(self, params, forward)

    @on("_x", source="agent")
    async def _agent(self, params, forward):
        self.log.append(params["n"])
        return await self.from_agent(self, params, forward)


async def forward_unchanged(self, params, forward):
    """A function for `Scripted`."""
    return await forward()
