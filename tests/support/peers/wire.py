"""Peers on lines in memory: the test writes and reads JSON, or raw proxies and agents play alone.

Nothing here encodes with the code under test; forwarded messages keep their bytes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.errors import ConnectionClosed
from conductor.testing.memory_pair_component import MemoryPairComponent
from conductor.transport.memory import MemoryTransport
from support.raw_json import cut, dumps

_PATIENCE = 3.0
"""Virtual seconds that a test waits for a message; less than any timeout of the conductor."""


def encoded(message: dict[str, Any]) -> bytes:
    """A message as a line; `jsonrpc` is added."""
    return dumps({"jsonrpc": "2.0", **message}) + b"\n"


@attrs.define(eq=False)
class Peer:
    """Reads everything as it comes, and writes as fast as the other side takes it.

    When the other side ends its stream, so does this one, unless `stays`.
    """

    transport: MemoryTransport
    name: str = "peer"
    stays: bool = False
    reads: bool = True
    ended: bool = False
    """The other side has ended its stream."""
    lines: deque[bytes] = attrs.field(factory=deque)
    """Lines that came and were not taken yet."""
    _rest: bytes = b""
    _outgoing: bytearray = attrs.field(factory=bytearray)
    _closing: bool = False
    _wrote: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _arrived: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            while chunk := await self._receive():
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    self.take(line)
                self._arrived.unpark_all()
            self.ended = True
            self._arrived.unpark_all()
            if self.stays:
                await trio.sleep_forever()
            self.close()

    def take(self, line: bytes) -> None:
        self.lines.append(line)

    async def _receive(self) -> bytes:
        while not self.reads:
            await self._arrived.park()
        return await self.transport.receive()

    def start_reading(self) -> None:
        self.reads = True
        self._arrived.unpark_all()

    def stop_reading(self) -> None:
        """Read at most one more chunk."""
        self.reads = False

    # -- writing -------------------------------------------------------------------------------

    def send(self, *messages: dict[str, Any]) -> None:
        """Send messages, each on a line of its own; `jsonrpc` is added."""
        for message in messages:
            self.send_bytes(encoded(message))

    def send_line(self, line: bytes) -> None:
        self.send_bytes(line + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self._outgoing += data
        self._wrote.unpark_all()

    def answer(self, request: dict[str, Any], result: Any = None) -> None:
        self.send({"id": request["id"], "result": {} if result is None else result})

    def refuse(self, request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.send({"id": request["id"], "error": error})

    def close(self) -> None:
        """End the outgoing stream after everything is written."""
        self._closing = True
        self._wrote.unpark_all()

    def unsent(self) -> int:
        return len(self._outgoing)

    async def _write(self) -> None:
        try:
            while True:
                while self._outgoing:
                    taken = self.transport.write_now([bytes(self._outgoing[: 1 << 16])])
                    del self._outgoing[:taken]
                    if not taken:
                        await self.transport.wait_writable()
                if self._closing:
                    self.transport.close_writing()
                    return
                await self._wrote.park()
        except ConnectionClosed:
            self._outgoing.clear()

    # -- reading -------------------------------------------------------------------------------

    async def receive_line(self) -> bytes:
        with trio.move_on_after(_PATIENCE):
            while not self.lines and not self.ended:
                await self._arrived.park()
        assert self.lines, f"{self.name}: nothing came" + (" before the end" if self.ended else "")
        return self.lines.popleft()

    async def receive(self) -> Any:
        """The next message, without `jsonrpc`; a batch as a list."""
        return _message(await self.receive_line())

    async def receive_nothing(self) -> None:
        """Check that no message arrives before all tasks are blocked."""
        await wait_all_tasks_blocked()
        assert list(self.lines) == []

    async def receive_all(self) -> list[Any]:
        """All messages received until all tasks are blocked."""
        await wait_all_tasks_blocked()
        found = [_message(line) for line in self.lines]
        self.lines.clear()
        return found

    async def wait_end(self) -> None:
        with trio.fail_after(_PATIENCE * 10):
            while not self.ended:
                await self._arrived.park()


@attrs.define(eq=False)
class MemoryComponent(MemoryPairComponent):
    """Speaks the wire protocol with `peer`, which a test (or `make_peer`) plays.

    It has ended when the peer has ended its stream. `kill` breaks the pipe, as a dead process does.
    """

    role: Literal["proxy", "agent"] = "proxy"
    make_peer: Callable[..., Peer] = Peer
    reports: list[tuple[str, str]] = attrs.field(factory=list, init=False)
    """Protocol errors reported for the component."""
    peer: Peer = attrs.field(init=False)
    terminated: bool = attrs.field(default=False, init=False)

    def _on_connected(self, transport: MemoryTransport) -> None:
        self.peer = self.make_peer(transport, f"{self.name}#{self.starts}")

    async def _run_peer(self) -> None:
        await self.peer.run()

    def crash(self) -> None:
        """Break the pipe, as a process does that is killed."""
        self.peer.transport.close()

    def _disconnect(self) -> None:
        self.peer.transport.close()

    def _report(self, event: str, detail: str, message: dict[str, object]) -> None:
        self.reports.append((event, detail))

    def terminate(self) -> None:
        self._stopping = self.terminated = True
        self.peer.close()


@attrs.define(eq=False)
class PassProxy(Peer):
    """Passes everything on, with ids of its own, in the dialect in which it was initialised.

    Subclasses decide otherwise in `decide`. Members of messages are raw JSON throughout.
    """

    dialect: str = "proxy"
    cancelled: list[bytes] = attrs.field(factory=list)
    """Own ids whose cancellation the conductor requested."""
    _last: int = 0
    _open: dict[bytes, tuple[bytes, bool]] = attrs.field(factory=dict)
    """By own id of a request: the id that it came with, and whether it was enveloped."""
    _given: dict[bytes, bytes] = attrs.field(factory=dict)
    """By received id of a request, the newest own id."""

    def take(self, line: bytes) -> None:
        message = cut(line)
        if message.get("method") == b'"$/cancel_request"':
            self.on_cancel(cut(message["params"])["requestId"])
        elif "method" not in message:
            self.on_response(message)
        else:
            method = json.loads(message["method"])
            if method in ("proxy/initialize", "_proxy/initialize"):
                self.dialect = method.split("/")[0]
                message["method"] = b'"initialize"'
                self.forward(message, toward_agent=True)
            elif method.endswith("/successor"):
                assert method == f"{self.dialect}/successor"
                inner = cut(message["params"])
                self.decide({**inner, **_id(message)}, toward_agent=False)
            else:
                self.decide(message, toward_agent=True)

    def decide(self, message: dict[str, bytes], *, toward_agent: bool) -> None:
        """What to do with a request or a notification."""
        self.forward(message, toward_agent=toward_agent)

    def forward(self, message: dict[str, bytes], *, toward_agent: bool) -> None:
        id: bytes | None = None
        if "id" in message:
            id = self.new_id()
            self._open[id] = message["id"], toward_agent
            self._given[message["id"]] = id
        params = message.get("params")
        self.put(id, message["method"], params, toward_agent=toward_agent)

    def put(
        self, id: bytes | None, method: bytes, params: bytes | None, *, toward_agent: bool
    ) -> None:
        """Write a request or a notification."""
        head = b'{"jsonrpc":"2.0",' + (b"" if id is None else b'"id":%b,' % id)
        tail = b'"method":%b%b}' % (method, b"" if params is None else b',"params":' + params)
        if toward_agent:
            envelope = b'"method":"%b/successor","params":{%b}' % (self.dialect.encode(), tail)
            self.send_line(head + envelope)
        else:
            self.send_line(head + tail)

    def new_id(self) -> bytes:
        self._last += 1
        return b'"%b-%d"' % (self.name.encode(), self._last)

    def on_response(self, message: dict[str, bytes]) -> None:
        theirs, _ = self._open.pop(message["id"])
        self.reply(theirs, message)

    def reply(self, id: bytes, message: dict[str, bytes]) -> None:
        kind = "result" if "result" in message else "error"
        self.send_line(b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (id, kind.encode(), message[kind]))

    def on_cancel(self, theirs: bytes) -> None:
        self.cancelled.append(theirs)
        id = self._given.get(theirs)
        if id is None or id not in self._open:
            return
        params = b'{"requestId":%b}' % id
        enveloped = self._open[id][1] and self.dialect == "_proxy"
        self.put(None, b'"$/cancel_request"', params, toward_agent=enveloped)


@attrs.define(eq=False)
class EchoAgent(Peer):
    """Answers `initialize`; answers every request with its params, and sends every notification
    back."""

    error: bytes | None = None
    """From now on the answer to every request."""

    def take(self, line: bytes) -> None:
        message = cut(line)
        if "method" not in message or message["method"] == b'"$/cancel_request"':
            return
        params = message.get("params", b"{}")
        if message["method"] == b'"initialize"':
            params = b'{"protocolVersion":1}'
        if "id" in message:
            kind, value = ("result", params) if self.error is None else ("error", self.error)
            head = b'{"jsonrpc":"2.0","id":%b,"%b":' % (message["id"], kind.encode())
            self.send_line(head + value + b"}")
        else:
            note = b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (message["method"], params)
            self.send_line(note)


def _message(line: bytes) -> Any:
    value = json.loads(line)
    if isinstance(value, list):
        return [_without_version(member) for member in value]
    return _without_version(value)


def _without_version(message: dict[str, Any]) -> dict[str, Any]:
    assert message.pop("jsonrpc") == "2.0"
    return message


def _id(message: dict[str, Any]) -> dict[str, bytes]:
    return {"id": message["id"]} if "id" in message else {}
