"""How an agent keeps the MCP servers of its sessions apart: a table, by name of the agent. Pure.

Found by trying the agents; the comments have the versions that were tried.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

__all__ = ["ServerScope", "server_scope"]

ServerScope: TypeAlias = Literal["by_session", "one_per_name", "shared"]
"""`by_session`: each session has servers of its own, under the declared names. `one_per_name`: the
agent's process has one server per name, so a second session needs another name. `shared`: as
`one_per_name`, and the model of every session sees the servers of all sessions."""

_SCOPES: Final[Mapping[str, ServerScope]] = {
    "*vibe*": "by_session",
    "*codex*": "by_session",
    "*gemini*": "by_session",
    "*qwen*": "by_session",
    # 0.10.30: a name that another session's server has is refused ("already registered").
    "*fast-agent*": "one_per_name",
    "*claude*": "by_session",
    # 1.18.33: servers belong to the directory; calls of any session's model reach them.
    "opencode*": "shared",
}
"""By glob for the lower-case name or title of the agent."""


def server_scope(info: Mapping[str, Any]) -> ServerScope | None:
    """Look up the name, then the title, of an `agentInfo`; return `None` if unknown."""
    for name in (info.get("name"), info.get("title")):
        for glob, scope in _SCOPES.items():
            if fnmatch.fnmatchcase(str(name or "").lower(), glob):
                return scope
    return None
