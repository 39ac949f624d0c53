"""Declarations of MCP servers that a proxy adds to a session, in the form of its ACP version.

An author returns the members that the protocol names, and leaves out what is empty:

    {"name": "docs", "command": "uvx", "args": ["docs-mcp"], "env": {"TOKEN": "…"}}
    {"name": "api", "url": "https://mcp.example.org/mcp", "headers": {"Authorization": "…"}}
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, Final

from conductor.errors import LocalProtocolError
from conductor.json_values import decode_value
from conductor.proxy.conversion import encode
from conductor.schema.base import Object

__all__ = ["declaration", "is_declaration"]

_EXAMPLE: Final = (
    'write {"name": "docs", "command": "uvx", "args": ["docs-mcp"]} or '
    '{"name": "docs", "url": "https://…"}'
)


def is_declaration(server: Any) -> bool:
    """Whether this is a declaration, and not a server object of the MCP SDK."""
    return isinstance(server, Mapping | Object)


def declaration(where: str, server: Any, version: int) -> dict[str, Any]:
    """Return a declaration as version 1 or 2 of the protocol has it.

    A `command` without a slash is looked up in PATH, since agents require an absolute path and may
    have another PATH. Raises `LocalProtocolError`, which begins with `where`.
    """
    given: dict[str, Any] = (
        dict(server)
        if isinstance(server, Mapping)
        else decode_value(encode(server) or b"{}", type=dict[str, Any])
    )
    name, command, url = given.get("name"), given.get("command"), given.get("url")
    if not isinstance(name, str) or not name:
        raise LocalProtocolError(f"{where} returned an MCP server without a name: {_EXAMPLE}")
    type = given.pop("type", "stdio" if command is not None else "http")
    if type == "acp" and isinstance(given.get("serverId"), str):
        return {"type": "acp", **given}
    if type == "stdio" and isinstance(command, str) and url is None:
        stdio = {
            **given,
            "command": command if "/" in command else shutil.which(command) or command,
            "args": list(given.get("args") or ()),
            "env": _pairs(given.get("env")),
        }
        return stdio if version == 1 else {"type": "stdio", **stdio}
    if type in ("http", "sse") and isinstance(url, str) and command is None:
        return {"type": type, **given, "headers": _pairs(given.get("headers"))}
    raise LocalProtocolError(
        f"{where}: the MCP server {name!r} has neither one `command` (a text, with the other words "
        f"in `args`) nor one `url`: {_EXAMPLE}"
    )


def _pairs(values: Any) -> list[Any]:
    """Variables or headers as the protocol has them, from a dict or already so."""
    if isinstance(values, Mapping):
        return [{"name": name, "value": value} for name, value in values.items()]
    return list(values or ())
