"""MCP over ACP is advertised, and nothing else changes."""

from __future__ import annotations

import json

import pytest

from conductor.routing.capabilities import has_mcp_over_acp, with_mcp_over_acp

V1 = {"agentCapabilities": {"mcpCapabilities": {"acp": True}}}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b"{}", V1),
        (b'{"agentCapabilities":null}', V1),
        (b'{"agentCapabilities":{"mcpCapabilities":{"acp":false}}}', V1),
        (
            b'{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}}}',
            {
                "protocolVersion": 1,
                "agentCapabilities": {"mcpCapabilities": {"http": True, "acp": True}},
            },
        ),
        (
            b'{"protocolVersion":2,"capabilities":{"session":{"fork":{}}}}',
            {
                "protocolVersion": 2,
                "capabilities": {"session": {"fork": {}, "mcp": {"acp": {}}}},
            },
        ),
    ],
)
def test_the_capability_is_added_where_the_version_has_it(result, expected):
    amended = with_mcp_over_acp(result)

    assert json.loads(amended) == expected
    assert has_mcp_over_acp(amended)


@pytest.mark.parametrize(
    "result",
    [
        b'{ "agentCapabilities" : {"mcpCapabilities":{"acp":true}} }',
        b'{"protocolVersion":2,"capabilities":{"session":{"mcp":{"acp":{"x":1}}}}}',
        b"null",
        b"[]",
        b"7",
    ],
)
def test_an_answer_that_has_it_or_is_none_stays_as_it_is(result):
    assert with_mcp_over_acp(result) is result
