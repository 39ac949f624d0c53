"""What a message costs in an in-process proxy: `python tests/benchmarks/bench_plugin.py`.

Prints microseconds per message, the best of several rounds. Handled messages come in runs of 100,
as from an agent that streams; a lone one costs two task switches more ("alone").
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import trio

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on
from conductor.routing.port import Port, connect_ports
from conductor.schema.v1 import AgentMessageChunk, SessionNotification
from conductor.transport.io_loop import Flusher

RUN = 100
ROUNDS = 200
UPDATE = (
    b'{"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk",'
    b'"content":{"type":"text","text":"Hello wor"}}}'
)


class Untouched(Proxy):
    pass


class Raw(Proxy):
    @on("session/update")
    async def update(self, params: bytes, forward):
        await forward()


class Plain(Proxy):
    @on("session/update")
    async def update(self, params: dict, forward):
        await forward()


class PlainEdit(Proxy):
    @on("session/update")
    async def update(self, params, forward):
        params["update"]["content"]["text"] = "edited"
        await forward(params)


class TypedEdit(Proxy):
    @on("session/update")
    async def update(self, message: SessionNotification, forward):
        if isinstance(message.update, AgentMessageChunk):
            message.update.content.text = "edited"
        await forward(message)


class Observer(Proxy):
    @on("*")
    async def see(self, message):
        pass


class Counter(Port):
    """Counts what it gets; answers requests."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.count += 1
        self.neighbour.respond(call, b"{}", None)

    def notify(self, method: str, params: Payload | None) -> None:
        self.count += 1

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        self.count += 1


@attrs.define
class BenchHost:
    wait_for_share: None = None
    flusher: Flusher = attrs.field(factory=Flusher)


async def handled(proxy: type[Proxy], send: Callable[[Port], None], count: int) -> float:
    """Seconds per message, from the first put to the last out."""
    component = PluginComponent("bench", proxy(), "proxy")
    client, agent = Counter(), Counter()
    connect_ports(client, component.client_port)
    connect_ports(component.agent_port, agent)  # type: ignore[arg-type]
    component.prepare(BenchHost())  # type: ignore[arg-type]
    best = float("inf")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(component.run)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(ROUNDS):
            client.count = agent.count = 0
            start = time.perf_counter()
            send(component.agent_port)  # type: ignore[arg-type]
            while client.count < count:
                await trio.lowlevel.checkpoint()
            best = min(best, (time.perf_counter() - start) / count)
        component.kill()
    return best


def one_by_one(side: Port) -> None:
    for _ in range(RUN):
        side.notify("session/update", UPDATE)


def as_run(side: Port) -> None:
    side.notify_batch(NotificationBatch("session/update", [UPDATE] * RUN))


def alone(side: Port) -> None:
    side.notify("session/update", UPDATE)


def requests(side: Port) -> None:
    for _ in range(RUN):
        side.request(InFlightRequest("fs/read_text_file", side), "fs/read_text_file", b"{}")


CASES: list[tuple[str, type[Proxy], Callable[[Port], None], int, str]] = [
    ("unhandled", Untouched, one_by_one, RUN, "≤ 0.3"),
    ("raw handler, forward()", Raw, as_run, RUN, ""),
    ("untyped handler, forward()", Plain, as_run, RUN, "≤ 2"),
    ("untyped handler, one by one", Plain, one_by_one, RUN, ""),
    ("untyped handler, alone", Plain, alone, 1, ""),
    ("untyped edit", PlainEdit, as_run, RUN, ""),
    ("typed edit of 119 bytes", TypedEdit, as_run, RUN, "≤ 15"),
    ("observer", Observer, as_run, RUN, ""),
]


async def measure() -> dict[str, float]:
    return {name: await handled(proxy, send, count) * 1e6 for name, proxy, send, count, _ in CASES}


def main() -> None:
    found: dict[str, Any] = trio.run(measure)
    for name, *_, wanted in CASES:
        print(f"{name:30} {found[name]:7.2f} µs  {wanted}")


if __name__ == "__main__":
    import trio.testing

    main()
