"""What clients and agents announce in one version, in the other."""

from __future__ import annotations

import pytest

from proxies.v1_v2.handshake import initialize_params, initialize_result

INFO = {"name": "peer", "version": "1"}
OF_CLIENTS = {"compaction": {}, "configOptions": {"boolean": {}}, "cursors": {}, "notices": {}}
"""What every client of version 2 can do, as version 1 announces it for sessions."""
CLIENT = (
    {
        "clientInfo": INFO,
        "clientCapabilities": {
            "auth": {"terminal": True},
            "session": {"commands": {"skill": {}}, **OF_CLIENTS},
            "elicitation": {"form": {}},
            "subagents": {},
            "plan": {},
        },
    },
    {
        "info": INFO,
        "capabilities": {
            "auth": {"terminal": {}},
            "session": {"commands": {"skill": {}}},
            "elicitation": {"form": {}},
        },
    },
)
AGENT = (
    {
        "agentInfo": INFO,
        "agentCapabilities": {
            "auth": {"logout": {}},
            "loadSession": True,
            "promptCapabilities": {"image": True},
            "mcpCapabilities": {"http": True},
            "sessionCapabilities": {"fork": {}, "list": {}, "resume": {}, "close": {}},
        },
        "authMethods": [
            {"id": "key", "name": "Key"},
            {"type": "terminal", "id": "cli", "name": "CLI", "env": {"A": "1"}},
        ],
    },
    {
        "info": INFO,
        "capabilities": {
            "auth": {},
            "session": {"fork": {}, "prompt": {"image": {}}, "mcp": {"stdio": {}, "http": {}}},
        },
        "authMethods": [
            {"type": "agent", "methodId": "key", "name": "Key"},
            {
                "type": "terminal",
                "methodId": "cli",
                "name": "CLI",
                "env": [{"name": "A", "value": "1"}],
            },
        ],
    },
)


@pytest.mark.parametrize(
    ("convert", "peer"),
    [(initialize_params, CLIENT), (initialize_result, AGENT)],
    ids=["client", "agent"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_a_peer_announces_has_the_form_of_the_other_version(convert, peer, version):
    told = {"protocolVersion": version, **peer[version - 1], "unknown": 1}

    there = convert(told, 3 - version)

    assert there == {"protocolVersion": 3 - version, **peer[2 - version], "unknown": 1}


def test_what_the_other_version_does_not_have_is_left_out():
    client = {"fs": {"readTextFile": True}, "terminal": True, "nes": None}
    assert initialize_params({"clientCapabilities": client}, 2) == {
        "protocolVersion": 2,
        "info": {"name": "unknown", "version": "unknown"},
        "capabilities": {"session": {"commands": {"skill": {}}}},
    }
    agent = {"mcpCapabilities": {"sse": True}, "promptCapabilities": {"audio": False}}
    found = initialize_result({"agentCapabilities": agent, "agentInfo": INFO}, 2)
    assert found["capabilities"] == {"session": {"prompt": {}, "mcp": {"stdio": {}}}}
    methods = [{"type": "_new", "methodId": "new", "name": "New"}]
    assert initialize_result({**AGENT[1], "authMethods": methods}, 1)["authMethods"] == []
