"""A plugin between two ends that a test plays, with nothing else around it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.components.plugin import PluginComponent
from conductor.connection.calls import Call
from conductor.connection.pump import Flusher, Gate
from conductor.messages import encode_error
from conductor.proxy import Proxy
from conductor.routing.sides import Side, link


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


class End(Side):
    """The client, or the agent: keeps what it gets, in order, as tuples that begin with a word.

    ("request", method, params), ("notification", method, params), ("answer", name, result or
    error code). A request that it sent is known by its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.heard: list[tuple[Any, ...]] = []
        self.asked: list[Call] = []
        """Requests that it has not answered yet."""
        self.cancelled: list[str] = []
        """Methods of requests to it that were cancelled."""
        self._names: dict[Call, Any] = {}

    # -- what arrives ------------------------------------------------------------------------------

    def request(self, call: Call, method: str, params: Any) -> None:
        call.target = self
        self.asked.append(call)
        self.hear("request", method, json.loads(bytes(params)) if params is not None else None)
        if call.cancelled:
            self.cancel(call)

    def notify(self, method: str, params: Any) -> None:
        self.hear("notification", method, json.loads(bytes(params)) if params is not None else None)

    def respond(self, call: Call, result: Any, error: Any) -> None:
        call.answered = True
        value = json.loads(bytes(error))["code"] if error is not None else json.loads(bytes(result))
        self.hear("answer", self._names[call], value)

    def cancel(self, call: Call) -> None:
        self.cancelled.append(call.method)

    def hear(self, *what: Any) -> None:
        self.heard.append(what)

    # -- what it sends -----------------------------------------------------------------------------

    def send(self, method: str, params: Any = None) -> None:
        self.neighbour.notify(method, None if params is None else dumps(params))

    def ask(self, method: str, params: Any = None, name: Any = None) -> Call:
        call = Call(method, self)
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
    limit: int = 1 << 20
    failures: list[Any] = attrs.field(factory=list)

    def edge_gate(self) -> Gate:
        return Gate(self.flusher, lambda: 0)

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
async def hop(plugin: Proxy, end: type[End] = End) -> AsyncIterator[Hop]:
    """Run the plugin; at the end it is ended as at the end of a chain."""
    component = PluginComponent("hop", plugin, "proxy", start_timeout=30)
    made = Hop(component, end("client"), end("agent"), Host())
    link(made.client, component.client_side)
    assert component.agent_side is not None
    link(component.agent_side, made.agent)
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
