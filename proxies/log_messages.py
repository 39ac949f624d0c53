"""`log_messages`: logs every message: sender, method, size, duration.

Messages are logged as they are at this place in the chain: put one before and one after a proxy to
see the proxy's effect. They are neither changed nor delayed.

Options:
    methods    globs for the methods that are logged; default all
    file       a file to append lines of JSON to; without one, the conductor's log, at `level`
    level      default info, which is logged by default
    content    whether params and results are written to the file; default no. They contain the
               text of users and files, secrets included
    max_bytes  of params or a result; larger ones are left out; default 65536
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TextIO

import attrs
import trio
from attrs.validators import ge

from conductor.files import open_output
from conductor.json_values import NestedTooDeeply, decode_loosely
from conductor.proxy import Proxy, RawMessage, get_logger, on

__all__ = ["LogMessages"]

_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]{1,200})"')
_KIND = re.compile(rb'"sessionUpdate"\s*:\s*"([^"\\]{1,100})"')

log = get_logger(component="log_messages")


@attrs.define
class LogMessages(Proxy):
    """Log messages."""

    on_error = "pass"

    methods: list[str] = attrs.field(factory=lambda: ["*"])
    file: Path | None = None
    level: Literal["debug", "info", "warning"] = "info"
    content: bool = False
    max_bytes: int = attrs.field(default=65536, validator=ge(0))
    _open: TextIO | None = attrs.field(default=None, init=False)
    _arrival_times: dict[int, float] = attrs.field(factory=dict, init=False)
    """Arrival time of open requests, by message number."""

    def __attrs_post_init__(self) -> None:
        if self.content and self.file is None:
            raise ValueError("`content` is written to a file only: give `file`")

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        if self.file is None:
            yield
            return
        with os.fdopen(open_output(self.file), "a", encoding="utf-8", buffering=1) as self._open:
            yield

    @on("*")
    async def log_message(self, message: RawMessage) -> None:
        if self._open is not None and self._open.closed:  # a write has failed
            return
        if not any(fnmatch.fnmatchcase(message.method, glob) for glob in self.methods):
            return
        fields = self._fields(message)
        if self._open is None:
            getattr(log, self.level)("message", **fields)
            return
        payload = message.payload
        if self.content and payload is not None and len(payload) <= self.max_bytes:
            try:
                fields["content"] = decode_loosely(payload)
            except NestedTooDeeply:
                fields["content"] = payload.decode(errors="replace")
        try:
            self._open.write(json.dumps({"time": time.time(), **fields}) + "\n")
        except OSError as exc:
            with suppress(OSError):
                self._open.close()
            what = f"{self.file} cannot be written, no more messages are logged: {exc.strerror}"
            raise OSError(what) from None

    def _fields(self, message: RawMessage) -> dict[str, Any]:
        payload = message.payload or b""
        fields: dict[str, Any] = {"source": message.source, "kind": message.kind}
        fields["method"] = message.method
        for name, regex in (("session", _SESSION), ("update", _KIND)):
            if message.kind != "response" and (found := regex.search(payload, 0, 4096)):
                fields[name] = found[1].decode(errors="replace")
        fields["bytes"] = len(payload)
        if message.kind == "request":
            self._arrival_times[message.number] = trio.current_time()
        elif message.kind == "response":
            fields["error"] = message.is_error
            asked = self._arrival_times.pop(message.number, None)
            if asked is not None:
                fields["ms"] = round(1000 * (trio.current_time() - asked), 1)
        return fields
