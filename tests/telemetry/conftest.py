"""Commands as real processes, and an OTLP receiver with the official protocol definitions."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PATIENCE = 30  # seconds; only a hanging program takes that long


@pytest.fixture
def run(tmp_path):
    """Run `acp-conductor` in `tmp_path`; returns the result of `subprocess.run`."""

    def run(*arguments, input="", env=None):
        return subprocess.run(
            [sys.executable, "-m", "conductor", *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            timeout=PATIENCE,
        )

    return run


@attrs.frozen
class ReceivedSpan:
    """A span as a collector has it; ids are hexadecimal."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[str, ...]
    is_error: bool


@attrs.define
class OtlpReceiver:
    """What came, and what is answered."""

    url: str = ""
    status: int = 200
    spans: list[ReceivedSpan] = attrs.field(factory=list)
    resources: list[dict[str, Any]] = attrs.field(factory=list)
    headers: list[dict[str, str]] = attrs.field(factory=list)

    def named(self, name: str) -> ReceivedSpan:
        """The only span of this name."""
        (found,) = (each for each in self.spans if each.name == name)
        return found

    def parent_of(self, span: ReceivedSpan) -> str | None:
        """The name of the parent; `None` if it did not come."""
        return next((each.name for each in self.spans if each.span_id == span.parent_id), None)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for of_resource in request.resource_spans:
            self.resources.append(_attributes(of_resource.resource.attributes))
            for of_scope in of_resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        name=each.name,
                        trace_id=each.trace_id.hex(),
                        span_id=each.span_id.hex(),
                        parent_id=each.parent_span_id.hex(),
                        kind=each.kind,
                        start=each.start_time_unix_nano,
                        end=each.end_time_unix_nano,
                        attributes=_attributes(each.attributes),
                        events=tuple(event.name for event in each.events),
                        is_error=each.status.code == 2,
                    )
                    for each in of_scope.spans
                ]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """An OTLP receiver over HTTP on loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.headers.append({"path": self.path, **dict(self.headers.items())})
            if receiver.status == 200:
                receiver.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(receiver.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def _attributes(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in items:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        is_list = kind == "array_value"
        found[each.key] = [one.string_value for one in value.values] if is_list else value
    return found
