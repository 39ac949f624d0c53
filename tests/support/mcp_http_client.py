"""An MCP client over Streamable HTTP, for the tests of the HTTP bridge."""

from __future__ import annotations

import httpx2

from support.no_authorities import NO_AUTHORITIES

HTTP = {"mcpCapabilities": {"http": True}}

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}

ACCEPT = {"Accept": "application/json, text/event-stream"}


def web_client(entry, **more):
    headers = {one["name"]: one["value"] for one in entry["headers"]}
    return httpx2.AsyncClient(headers={**headers, **more}, trust_env=False, verify=NO_AUTHORITIES)


def message(method, params, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
