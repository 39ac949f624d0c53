"""The wire for the test components: one JSON-RPC message per line, stdin to stdout, one thread.

A component subclasses `Component` and overrides `handle`, which gets every message in the order
in which it came. Nothing here waits for an answer: a request that a component sends has a
callback, so that one thread suffices and every run is the same. Values are parsed and written
again by `json`: a component that must keep `1e400` or duplicate keys is not written with this.

Components are started some thousand times: they do not import `typing`, which takes a tenth of a
start, and `argparse` and `subprocess` only if they need it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Message = dict[str, "Any"]
Callback = Callable[[Message], None]


def key(request_id: object) -> str:
    """An id as a dictionary key: 1, "1" and null are three ids."""
    return json.dumps(request_id)


class Component:
    """One peer on stdin and stdout; ids of its own requests are `<name>-<n>`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = count(1)
        self._callbacks: dict[str, Callback] = {}

    def handle(self, message: Message) -> None:
        raise NotImplementedError

    def run(self, lines: Iterable[bytes] = sys.stdin.buffer) -> None:
        for line in lines:
            self.receive(json.loads(line))

    def receive(self, message: Message) -> None:
        if "method" in message:
            self.handle(message)
        elif callback := self._callbacks.pop(key(message.get("id")), None):
            callback(message)

    def send(self, message: Message) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=False)
        self.write(text.encode() + b"\n")

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def request(self, method: str, params: Any, callback: Callback) -> str:
        request_id = f"{self.name}-{next(self._numbers)}"
        self._callbacks[key(request_id)] = callback
        self.send({"id": request_id, "method": method, "params": params})
        return request_id

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def answer(self, request_id: object, result: Any) -> None:
        self.send({"id": request_id, "result": result})

    def refuse(self, request_id: object, code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.send({"id": request_id, "error": error})
