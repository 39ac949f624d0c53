"""What `doctor` says of MCP servers."""

from __future__ import annotations

import socket

import pytest
import trio

from conductor.chainfile import load
from conductor.cli.doctor.mcp_servers import (
    AddedServer,
    ServerStart,
    added_servers,
    gather_server,
    server_findings,
)


def test_the_servers_of_a_chain_are_found(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "version: 1\nproxies:\n  - use: mcp_servers\n    with:\n      servers:\n"
        "        - {name: a, command: [a, --fast], env: {K: v}}\n"
        "        - {name: b, url: 'https://b', type: sse, headers: {H: v}}\n"
        "        - {name: c, remove: true}\nagent: {run: x}\n"
    )

    assert added_servers(load(str(path))) == [
        AddedServer("a", ("a", "--fast"), {"K": "v"}),
        AddedServer("b", url="https://b", type="sse", headers={"H": "v"}),
    ]


@pytest.mark.parametrize(
    "entry",
    ["command: npx, args: [-y, a]", "command: []", "command: [a], env: [K=v]", "url: [u]"],
)
def test_an_entry_with_mistakes_is_no_server_that_does_not_start(tmp_path, entry):
    path = tmp_path / "c.yaml"
    servers = f"{{servers: [{{name: a, {entry}}}]}}"
    path.write_text(
        f"version: 1\nproxies: [{{use: mcp_servers, with: {servers}}}]\nagent: {{run: x}}\n"
    )

    assert added_servers(load(str(path))) == []


@pytest.mark.parametrize(
    ("start", "severity", "help"),
    [
        (ServerStart(AddedServer("a", ("a",)), 0.1, tools=2), "ok", None),
        (ServerStart(AddedServer("a", url="u"), 9.0, tools=2), "warning", None),
        (
            ServerStart(AddedServer("a", ("a b", "c")), 0.1, error="gone"),
            "error",
            "run it in a terminal: 'a b' c",
        ),
        (
            ServerStart(AddedServer("a", ("a",)), 0.1, error="command not found: a"),
            "error",
            "install it, or write its absolute path",
        ),
    ],
)
def test_what_to_do(start, severity, help):
    [finding] = server_findings(start)

    assert (finding.severity, finding.help) == (severity, help)


def test_a_server_that_hangs_has_the_limit_of_the_chain():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = AddedServer("a", url=f"http://127.0.0.1:{silent.getsockname()[1]}/")

        start = trio.run(gather_server, server, 0.1)

    assert (start.error, start.is_overdue) == ("it did not answer within 0.1 s", True)
