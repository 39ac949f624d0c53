"""Scripted proxies and agents on raw lines: forwarded messages keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import attrs

from support.scripted_peer import Peer

from .raw_json import cut


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


def _id(message: dict[str, Any]) -> dict[str, bytes]:
    return {"id": message["id"]} if "id" in message else {}
