"""The server of the page: token, Host, headers, what is served and what is not."""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
import trio

from conductor.network.peer_user import user_at
from conductor.viewer.app import open_viewer
from conductor.viewer.trace_source import TraceSource


@pytest.fixture
async def server(turn, tmp_path):
    with TraceSource(turn.write(tmp_path / "t.jsonl")) as source:
        async with open_viewer(source) as url:
            yield url


async def get(server, path, token=None, host=None, method="GET", origin=None):
    """Status, headers and body."""
    url = urlsplit(server)
    headers = {"Host": host or url.netloc}
    if token is None:
        headers["Authorization"] = f"Bearer {url.fragment.removeprefix('token=')}"
    elif token:
        headers["Authorization"] = token
    if origin is not None:
        headers["Origin"] = origin

    def ask():
        connection = HTTPConnection("127.0.0.1", url.port, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        result = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return result

    return await trio.to_thread.run_sync(ask)


async def test_rows_and_records_need_the_token(server):
    for path in ("/api/rows", "/api/record?row=1", "/api/search?text=a", "/api/links", "/api/x"):
        for token in ("", "Bearer wrong-wrong-wrong-wrong", "Basic eDp5"):
            status, _, body = await get(server, path, token=token)
            assert (status, body) == (401, b"a valid bearer token is required\n")

    status, _, body = await get(server, "/api/rows?from=0&strings=0&wait")
    assert status == 200
    assert json.loads(body)["name"] == "t.jsonl"


async def test_no_code_is_exchanged_that_was_not_given(server):
    for code in ("", "?code=", "?code=None", "?code=%F0%9F"):
        assert (await get(server, f"/api/token{code}", token=""))[0] == 401


async def test_another_user_who_reads_the_code_from_ps_gets_no_token(turn, tmp_path, monkeypatch):
    seen = []

    def of_another_user(remote, local):
        seen.append(user_at(remote, local))
        return 65534

    with TraceSource(turn.write(tmp_path / "t.jsonl")) as source:
        async with open_viewer(source, code="from-ps") as url:
            with monkeypatch.context() as patched:
                patched.setattr("conductor.viewer.app.user_at", of_another_user)
                assert (await get(url, "/api/token?code=from-ps", token=""))[0] == 403
            assert seen == [os.geteuid()]  # that of this test, as the kernel tells it

            status, _, body = await get(url, "/api/token?code=from-ps", token="")
            assert (status, json.loads(body)) == (200, url.rpartition("token=")[2])
            assert (await get(url, "/api/token?code=from-ps", token=""))[0] == 401


async def test_the_page_has_nothing_of_the_trace_and_needs_no_token(server):
    for path, start in (("/", b"<!doctype"), ("/view.js", b"// "), ("/view.css", b":root")):
        status, _, body = await get(server, path, token="")
        assert (status, body[: len(start)]) == (200, start)
        assert b"What is new?" not in body


@pytest.mark.parametrize("host", ["evil.example", ""])
async def test_another_host_name_is_refused(server, host):
    status, _, _ = await get(server, "/", host=host or "@")
    assert status in (400, 421)


async def test_localhost_is_a_name_of_it(server):
    port = urlsplit(server).port
    status, _, _ = await get(server, "/", host=f"localhost:{port}")
    assert status == 200


async def test_another_origin_is_refused(server):
    url = urlsplit(server)
    assert (await get(server, "/api/rows", origin="https://evil.example"))[0] == 403
    assert (await get(server, "/api/rows", origin=f"http://127.0.0.1:{url.port + 1}"))[0] == 403
    assert (await get(server, "/api/rows", origin=f"http://{url.netloc}"))[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/../t.jsonl", "/..%2ft.jsonl", "//etc/passwd", "/x"],
)
async def test_no_other_file_is_served(server, path):
    assert (await get(server, path))[0] in (400, 404)


async def test_every_response_has_the_policy(server):
    for path in ("/", "/view.js", "/api/rows", "/api/x", "/x"):
        _, headers, _ = await get(server, path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


async def test_only_reading_is_served(server):
    assert (await get(server, "/api/rows", method="POST"))[0] == 405


async def test_pages_of_rows_have_the_strings_that_are_new(server, turn):
    first = json.loads((await get(server, "/api/rows?wait"))[2])
    while first["state"] == "loading":
        first = json.loads((await get(server, "/api/rows?wait"))[2])
    known = len(first["strings"])

    rest = json.loads((await get(server, f"/api/rows?from=3&strings={known}"))[2])

    assert first["lanes"] == ["client", "notes", "agent"]
    assert rest["rows"] == first["rows"][3:]
    assert (rest["strings"], rest["total"]) == ([], len(turn.records))


@pytest.mark.parametrize("path", ["record?row=-1", "record?row=99999", "record", "search"])
async def test_what_is_not_there_is_not_found(server, path):
    assert (await get(server, f"/api/{path}"))[0] == 404


async def test_a_search_answers_with_rows(server, turn):
    await test_pages_of_rows_have_the_strings_that_are_new(server, turn)
    body = (await get(server, "/api/search?text=be%20kind&from=0"))[2]
    assert json.loads(body) == {"rows": [2], "next": len(turn.records)}
