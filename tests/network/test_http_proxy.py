"""Through a proxy that the environment names: the PyPI package `proxy.py`, which is a real one."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from remote.test_error_messages import why_it_does_not_start
from support.remote_agents import reach, sdk_server

from conductor.network.address import RemoteAddress
from conductor.network.tcp import HttpProxyError, proxy_for

needs_proxy = pytest.mark.skipif(
    importlib.util.find_spec("proxy") is None, reason="pip install proxy.py"
)
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in (*NAMES, "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def http_proxy(*options: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    argv = [sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", str(port)]
    more = ("--num-acceptors", "1", "--num-workers", "1", "--log-level", "CRITICAL")
    process = subprocess.Popen([*argv, *more, *options])
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
@needs_proxy
@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_a_chain_reaches_its_agent_through_the_proxy(scheme, monkeypatch):
    with sdk_server() as (_, where), http_proxy("--basic-auth", "me:pass") as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:pass@{proxy}")
        async with reach(connect=f"{scheme}://{where}") as client:
            await client.initialize()
            session = await client.new_session("/tmp")
            answer = await client.prompt(session, "hello")

    assert answer["stopReason"] == "end_turn"


@needs_proxy
async def test_a_proxy_that_refuses_is_named_without_its_password(monkeypatch):
    with http_proxy("--basic-auth", "me:pass") as proxy:
        monkeypatch.setenv("all_proxy", f"http://me:wrong-one@{proxy}")
        error = await why_it_does_not_start(connect="wss://127.0.0.1:1")

    assert f"the proxy http://{proxy} refused to connect (407" in error.message
    assert "wrong-one" not in str(error.data)


@pytest.mark.parametrize("scheme", ["ws", "http", "wss", "https"])
async def test_a_proxy_that_is_not_there_is_named(scheme, monkeypatch):
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    error = await why_it_does_not_start(connect=f"{scheme}://127.0.0.1:1")

    assert f"could not be reached at {scheme}://127.0.0.1:1/acp: " in error.message
    assert "proxy" in error.message
    assert "connection refused" in error.message


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("ws://a.org", {"http_proxy": "http://p:1"}, "http://p:1"),
        ("wss://a.org", {"http_proxy": "http://p:1"}, None),
        ("wss://a.org", {"https_proxy": "p:1"}, "http://p:1"),
        ("http://a.org", {"all_proxy": "http://p:1"}, "http://p:1"),
        ("http://a.org", {"http_proxy": "http://p:1", "no_proxy": "b.org, a.org"}, None),
        ("http://x.a.org", {"http_proxy": "http://p:1", "no_proxy": ".a.org"}, None),
        ("http://127.0.0.1:99", {"http_proxy": "http://p:1", "no_proxy": "127.0.0.1"}, None),
    ],
)
def test_the_environment_names_a_proxy_by_scheme_and_leaves_out_hosts(
    url, environment, proxy, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert proxy_for(RemoteAddress.from_url(url, {})) == proxy


def test_a_proxy_of_another_kind_is_refused(monkeypatch):
    monkeypatch.setenv("all_proxy", "socks5://me:pass@p:1")

    with pytest.raises(HttpProxyError, match=r"the proxy socks5://p:1 .* is not an HTTP proxy"):
        proxy_for(RemoteAddress.from_url("ws://a.org", {}))
