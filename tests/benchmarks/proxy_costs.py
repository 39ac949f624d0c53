"""CPU time of the ready-made proxies per message: `python -m tests.benchmarks.proxy_costs`.

The proxies are components of one process, connected as in a chain, between a client and an agent
that only count. Figures are microseconds of CPU time per message, the minimum of several rounds, in
which updates arrive in batches of 100 as from an agent that streams.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import attrs
import trio
import trio.testing

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.messages import Payload
from conductor.jsonrpc.notification_batch import NotificationBatch
from conductor.plugins.plugin_component import PluginComponent
from conductor.proxy import Proxy, on_update
from conductor.routing.port import Port, connect_ports
from conductor.transport.io_loop import Flusher
from proxies.context import PromptContext
from proxies.hooks import Hook, Hooks
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.redact import Redact
from proxies.usage import Usage

__all__ = ["MESSAGES", "PROXIES", "OtherKind", "measure"]

_RESULTS = {
    "initialize": b'{"protocolVersion":1,"agentInfo":{"name":"counter"}}',
    "session/new": b'{"sessionId":"session-1"}',
    "session/prompt": b'{"stopReason":"end_turn"}',
}
_PROSE = (
    "The function reads the file line by line. It calls `parse(line)` for each, and returns a\n"
    'list of (name, value) pairs; see "docs/format.md", section 3.1.\n\n'
    '    for name, value in pairs[:10]:\n        print(f"{name:20} {value}")\n'
)


class OtherKind(Proxy):
    """A proxy with a handler for updates of a kind that does not occur."""

    @on_update("plan")
    async def plan(self, session, update, forward):
        await forward()


PROXIES: dict[str, Callable[[], Proxy]] = {
    "usage": Usage,
    "permissions": lambda: Permissions([Rule(action="deny", kind="delete")]),
    "hooks": lambda: Hooks([Hook(events=["tool_end"], run=["true"])]),
    "context": lambda: PromptContext(text="Be brief."),
    "redact": lambda: Redact(environment=[]),
}


@attrs.frozen
class Message:
    """A message, and how many are sent in a round."""

    method: str
    params: bytes = attrs.field(repr=False)
    count: int
    rounds: int


def _text(size: int) -> str:
    return (_PROSE * (size // len(_PROSE) + 1))[:size]


def _update(text: str, kind: str, count: int) -> Message:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": kind, "content": content}
    params = _encoded({"sessionId": "session-1", "update": update})
    return Message("session/update", params, count, 30)


def _prompt(text: str) -> Message:
    prompt = [{"type": "text", "text": text}]
    return Message("session/prompt", _encoded({"sessionId": "session-1", "prompt": prompt}), 1, 12)


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


MESSAGES = {
    "update of 100 B": _update("Hello wor", "agent_message_chunk", 100),
    "update of 4 KiB": _update(_text(4096), "agent_message_chunk", 100),
    "update of 4 KiB, one word": _update("x" * 4096, "agent_message_chunk", 100),
    "prompt of 1 MiB": _prompt(_text(1 << 20)),
    "prompt of 1 MiB, one word": _prompt("x" * (1 << 20)),
}


class _End(Port):
    """A client or an agent that counts messages and answers requests."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        self.neighbour.respond(call, _RESULTS.get(method, b"{}"), None)

    def notify(self, method: str, params: Payload | None) -> None:
        self.count += 1

    def respond(self, call: InFlightRequest, result: Payload | None, error: Payload | None) -> None:
        assert error is None, error
        self.count += 1


@attrs.define
class _Host:
    flusher: Flusher = attrs.field(factory=Flusher)
    wait_for_share: None = None

    def send_notice(self, *told: object, **how: object) -> None:
        raise AssertionError(told)


async def measure(proxies: Sequence[Proxy], message: Message) -> float:
    """Microseconds of CPU time for one message through these proxies."""
    components = [PluginComponent(type(each).__name__, each, "proxy") for each in proxies]
    client, agent = _End(), _End()
    side: Port = client
    for component in components:
        connect_ports(side, component.client_port)
        side = component.agent_port  # type: ignore[assignment]
    connect_ports(side, agent)
    for component in components:
        component.prepare(_Host())  # type: ignore[arg-type]

    async def answered(method: str, params: bytes) -> None:
        expected = client.count + 1
        client.neighbour.request(InFlightRequest(method, client), method, params)
        while client.count < expected:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()

    best = float("inf")
    async with trio.open_nursery() as nursery:
        for component in components:
            nursery.start_soon(component.run)
        await trio.testing.wait_all_tasks_blocked()
        await answered("initialize", b'{"protocolVersion":1}')
        await answered("session/new", b'{"cwd":"/work","mcpServers":[]}')
        for _ in range(message.rounds):
            expected = client.count + message.count
            start = time.process_time_ns()
            if message.method == "session/prompt":
                call = InFlightRequest(message.method, client)
                client.neighbour.request(call, message.method, message.params)
            else:
                agent.neighbour.notify_batch(
                    NotificationBatch(message.method, [message.params] * message.count)
                )
            while client.count < expected:
                await trio.lowlevel.checkpoint()
            best = min(best, (time.process_time_ns() - start) / message.count)
        for component in components:
            component.kill()
    return best / 1000


def main(names: Sequence[str]) -> None:
    cases = {name: [name] for name in PROXIES} | {"all five": list(PROXIES)}
    print(f"{'µs of CPU time':28}", *(f"{name:>12}" for name in [*cases, "other kind"]))
    for title, message in MESSAGES.items():
        if names and not any(name in title for name in names):
            continue
        chains = [[PROXIES[each]() for each in chosen] for chosen in cases.values()]
        chains.append([OtherKind()])
        found = [trio.run(measure, chain, message) for chain in chains]
        print(f"{title:28}", *(f"{each:12,.1f}" for each in found))


if __name__ == "__main__":
    main(sys.argv[1:])
