"""Declared names of MCP servers that a bridge renamed for the agent. Pure.

A bridge may have to give the agent a server under another name than the declared one (`tools-2`
for `tools`). The agent then uses the new name in tool calls and permission requests. Proxies
between the bridge and the client get the declared name from the result of the session set-up
(`session/new`, `load`, `resume`, `fork`): if a server was renamed, its `_meta` has one more member.

    "_meta": {"acp-conductor/mcpServerNames": {"tools-2": "tools"}}

The mapping is valid for the session of that result. It works for proxies in any process, since it
travels with the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from conductor.jsonrpc.json_object import join_members, members_or_empty

__all__ = ["SERVER_NAMES", "declared_server_names", "with_server_names"]

SERVER_NAMES: Final = "acp-conductor/mcpServerNames"
"""Name of the `_meta` member."""


def declared_server_names(result: Any) -> dict[str, str]:
    """Declared name by the name that the agent was given; empty if no server was renamed.

    `result` is the decoded result of a session set-up.
    """
    meta = result.get("_meta") if isinstance(result, Mapping) else None
    names = meta.get(SERVER_NAMES) if isinstance(meta, Mapping) else None
    if not isinstance(names, Mapping):
        return {}
    return {given: name for given, name in names.items() if isinstance(name, str)}


def with_server_names(result: bytes, names: Mapping[str, str]) -> bytes:
    """The raw result with the names in its `_meta`; all other members keep their bytes.

    `null`, the result of `session/load` from older agents, becomes an object. Unchanged if `names`
    is empty, or if the result is not an object, or is nested too deeply to be decoded.
    """
    if not names or not result.startswith((b"{", b"null")):
        return result
    try:
        found = members_or_empty(result)
        meta = members_or_empty(found.get("_meta", b"{}"))
    except ValueError:
        return result
    meta[SERVER_NAMES] = json.dumps(dict(names)).encode()
    found["_meta"] = join_members(meta)
    return join_members(found)
