"""A page in Chromium talks ACP with `serve` if its origin is allowed.

`ws` is WebSocket over HTTP/1.1, `https` is fetch over HTTP/2, and `wss` is WebSocket over the
connection of HTTP/2 that fetch has opened (RFC 8441).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest
from support.chromium import chromium

from .programs import HERE, PATIENCE, served

HEARD = ["hello", "end_turn", "May I: allow\n", "end_turn"]


@pytest.fixture(scope="module")
def pages() -> Iterator[tuple[int, Queue[Any]]]:
    """The port that page.html is at, and what it posts."""
    results: Queue[Any] = Queue()

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = (HERE / "page.html").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def do_POST(self) -> None:
            results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, results
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def urls(tmp_path_factory, certificate, pages) -> Iterator[list[str]]:
    """Where ACP is served, to pages from 127.0.0.1 and not to those from localhost."""
    allowed = ["--allow-origin", f"http://127.0.0.1:{pages[0]}"]
    tls, directory = certificate.options, tmp_path_factory.mktemp("chain")
    with ExitStack() as stack:
        plain = stack.enter_context(served(directory, None, *allowed))
        secure = stack.enter_context(served(directory, None, *allowed, *tls))
        yield [f"ws://{plain}/acp", f"https://{secure}/acp", f"wss://{secure}/acp"]


@contextmanager
def browser(path: str, directory: Path, url: str) -> Iterator[None]:
    net_log = [f"--log-net-log={directory}/net.json", "--net-log-capture-mode=Everything"]
    arguments = ["--ignore-certificate-errors", *net_log, url]
    with chromium(path, directory, *arguments):
        yield


def test_a_page_of_an_allowed_origin_talks_acp(needs, tmp_path, pages, urls):
    port, results = pages
    query = urlencode([("url", url) for url in urls])
    with browser(needs("chromium"), tmp_path, f"http://127.0.0.1:{port}/?{query}"):
        result = results.get(timeout=PATIENCE)

    assert result == {"ws": [*HEARD, 1000], "https": [*HEARD, 202], "wss": [*HEARD, 1000]}
    assert ":protocol: websocket" in (tmp_path / "net.json").read_text()


def test_a_page_of_another_origin_is_refused(needs, tmp_path, pages, urls):
    port, results = pages
    query = urlencode([("url", url) for url in urls])
    with browser(needs("chromium"), tmp_path, f"http://localhost:{port}/?{query}"):
        result = results.get(timeout=PATIENCE)

    assert result == {"ws": "closed: 1006", "https": "TypeError", "wss": "closed: 1006"}
