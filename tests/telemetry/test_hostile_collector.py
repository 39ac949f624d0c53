"""The export of spans to a collector that is not one."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from support.trace_records import TraceScript

from conductor.telemetry.live import LiveExport

MEGABYTE = bytes(1 << 20)


@pytest.fixture
def collector(monkeypatch):
    """Answers to the path `/v1/traces`, set by the test; the paths that were asked, and the
    megabytes that were sent."""

    class Handler(BaseHTTPRequestHandler):
        asked, answer, sent = [], None, []

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.asked.append(self.path)
            with suppress(OSError):
                type(self).answer(self)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield Handler
        server.shutdown()
        thread.join()


def export():
    script = TraceScript()
    script.answer(script.request("client>notes", "session/new", {"cwd": "/"}), {})
    live = LiveExport()
    live.heard([msgspec.json.encode(each) + b"\n" for each in script.records])
    live.close(20)


def test_an_answer_without_end_is_not_read(collector):
    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(MEGABYTE)
            collector.sent.append(1)

    collector.answer = endless
    export()

    assert collector.asked == ["/v1/traces"]
    assert len(collector.sent) < 50


def test_the_spans_go_to_no_other_place(collector):
    def redirect(handler):
        handler.send_response(307)
        handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    collector.answer = redirect
    export()

    assert set(collector.asked) == {"/v1/traces"}
