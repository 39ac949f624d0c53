"""Downloads: https only, http on loopback, bounded."""

from __future__ import annotations

import hashlib
import socket
import threading
from contextlib import ExitStack

import pytest

from conductor.errors import RegistryError
from conductor.registry import download
from conductor.registry.download import check_url, fetch_bytes, fetch_file


@pytest.mark.parametrize(
    "url", ["https://example.org/a", "http://127.0.0.1:80/a", "http://[::1]/a", "http://localhost/"]
)
def test_https_and_loopback_are_allowed(url):
    check_url(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/a", "only https"),
        ("http://127.0.0.1.example.org/", "only https"),
        ("file:///etc/passwd", "only https"),
        ("https:///a", "only https"),
        ("https://[", "no URL"),
        ("https://user:hunter2@example.org/", "a user or a password"),
    ],
)
def test_other_urls_are_refused(url, reason):
    with pytest.raises(RegistryError, match=reason) as caught:
        check_url(url)

    assert "hunter2" not in str(caught.value)


def test_a_file_has_its_checksum(server, tmp_path):
    url = server.put("/a", b"content")

    assert fetch_file(url, tmp_path / "a") == hashlib.sha256(b"content").hexdigest()
    assert (tmp_path / "a").read_bytes() == b"content"


def test_redirects_are_followed(server):
    server.put("/b", b"content")
    server.redirects["/a"] = "/b"

    assert fetch_bytes(f"{server.url}/a", 100) == b"content"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://example.org/", "only https is allowed, a redirect leads to http://example.org/"),
        ("file:///etc/passwd", "a redirect leads to file"),
        ("http://[::1", "leads to no URL"),
        ("/a", "more than 5 redirects"),
    ],
)
def test_redirects_have_the_same_rules(server, target, reason):
    server.redirects["/a"] = target

    with pytest.raises(RegistryError, match=reason):
        fetch_bytes(f"{server.url}/a", 100)


def test_a_body_over_the_limit_is_refused(server, tmp_path):
    url = server.put("/a", b"x" * 3_000_000)

    with pytest.raises(RegistryError, match="larger than 1 MiB"):
        fetch_file(url, tmp_path / "a", limit=1 << 20)


def test_a_status_is_an_error(server):
    with pytest.raises(RegistryError, match="/missing answers 404"):
        fetch_bytes(f"{server.url}/missing", 100)


def test_the_query_of_a_url_is_in_no_message(server):
    for url in (
        f"{server.url}/missing?token=hunter2",
        "http://127.0.0.1:9/?token=hunter2",
        "http://example.org/?token=hunter2",
    ):
        with pytest.raises(RegistryError) as caught:
            fetch_bytes(url, 100)
        assert "hunter2" not in str(caught.value)


def test_a_server_that_falls_silent_within_a_body_is_named(monkeypatch):
    monkeypatch.setattr(download, "_SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as connections:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/archive"

        def answer():
            connection, _ = server.accept()
            connections.enter_context(connection)
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RegistryError, match=r"no answer from 127\.0\.0\.1:[0-9]+ in 0\.2 s"):
            fetch_bytes(url, 1000)
        thread.join()
