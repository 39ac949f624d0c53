"""Loose declarations of MCP servers become what the schema says."""

from __future__ import annotations

import pytest

from proxies.normalize.set_ups import repair_set_up

STDIO = {"name": "a", "command": "/a", "args": [], "env": []}
WITH_ENV = {**STDIO, "env": [{"name": "K", "value": "v"}]}
HTTP = {"type": "http", "name": "a", "url": "https://a/mcp", "headers": []}
SSE = {**HTTP, "type": "sse", "url": "https://a/sse"}


def repaired(servers, version=1):
    params = {"cwd": "/work", "mcpServers": servers}
    repair_set_up(params, version, required=True, cwd="/work")
    return params["mcpServers"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({**STDIO, "env": {"K": "v"}}, WITH_ENV),
        ({**STDIO, "env": ["K=v"]}, WITH_ENV),
        ({**STDIO, "env": [{"key": "K", "value": "v"}]}, WITH_ENV),
        ({**STDIO, "env": {"K": 1, "ON": True, "NO": None}},
         {**STDIO, "env": [{"name": "K", "value": "1"}, {"name": "ON", "value": "true"}]}),
        ({"name": "a", "command": "/a", "environment": {"K": "v"}}, WITH_ENV),
        ({"name": "a", "command": "/a"}, STDIO),
        ({**STDIO, "args": {}, "env": {}}, STDIO),
        ({**STDIO, "args": None, "env": None}, STDIO),
        ({**STDIO, "args": "--x 'b c'"}, {**STDIO, "args": ["--x", "b c"]}),
        ({**STDIO, "args": [1, "b"]}, {**STDIO, "args": ["1", "b"]}),
        ({"name": "a", "command": ["/a", "-x"]}, {**STDIO, "args": ["-x"]}),
        ({"type": "stdio", **STDIO}, STDIO),
        ({"command": "/bin/a"}, {"command": "/bin/a", "args": [], "env": [], "name": "a"}),
        ({"name": "a", "url": "https://a/mcp"}, HTTP),
        ({"name": "a", "url": "https://a/sse"}, SSE),
        ({"name": "a", "httpUrl": "https://a/mcp"}, HTTP),
        ({**HTTP, "headers": {"K": "v"}}, {**HTTP, "headers": [{"name": "K", "value": "v"}]}),
        *(({**HTTP, "type": each}, HTTP)
          for each in ("streamable-http", "streamableHttp", "streamable_http", "HTTP")),
        ({"name": "a", "url": "https://a/mcp", "transport": "streamable-http"}, HTTP),
    ],
)  # fmt: skip
def test_a_loose_declaration_becomes_that_of_the_schema(given, meant):
    assert repaired([given]) == [meant]
    assert repaired([meant]) == [meant]


def test_servers_may_be_an_object_by_name_or_absent():
    unnamed = {name: each for name, each in STDIO.items() if name != "name"}
    assert repaired({"a": unnamed, "b": {"url": "https://a/mcp"}}) == [STDIO, {**HTTP, "name": "b"}]
    assert repaired({"mcpServers": {"a": unnamed}}) == [STDIO]
    assert repaired({}) == repaired(None) == []
    assert repaired([{**STDIO, "disabled": True}]) == []
    params = {"cwd": "/work"}
    repair_set_up(params, 1, required=True, cwd="/work")
    assert params == {"cwd": "/work", "mcpServers": []}


def test_in_version_2_a_program_has_a_type():
    assert repaired([STDIO], version=2) == [{"type": "stdio", **STDIO}]
    params = {"cwd": "/work"}
    repair_set_up(params, 2, required=True, cwd="/work")
    assert params == {"cwd": "/work"}


def test_what_cannot_be_repaired_stays():
    servers = ["a", {"name": "a", "type": "acp", "serverId": "1"}, {"name": "b", "type": "quic"}]
    assert repaired(servers) == servers
    assert repaired("a") == "a"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("sub/../x", "/work/x"), (".", "/work"), ("", "/work"), (None, "/work"), ("/a/", "/a/")],
)
def test_directories_are_absolute(given, meant):
    params = {"cwd": given, "additionalDirectories": ["lib", "/b"]}
    repair_set_up(params, 1, required=False, cwd="/work")
    assert params == {
        "cwd": meant,
        "additionalDirectories": [f"{meant.rstrip('/')}/lib", "/b"],
    }
