"""Clients: what those are known to mis-handle that they do not announce, and what editors announce.
Pure.

They are recognized by the name in `clientInfo`. Tables in Python, not a file: they are looked at in
each start.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from conductor.adapters.negotiated import Announced

__all__ = ["EDITOR_REQUESTS", "Behaviour", "is_known_to"]

Behaviour: TypeAlias = Literal[
    "lose_late_messages", "hide_plans", "options_by_kind", "loose_set_ups"
]
"""`lose_late_messages`: updates and permission requests outside of a turn are neither shown nor
answered.
`hide_plans`: a permission request is shown without its content.
`options_by_kind`: of the options of a permission request, one of each kind can be chosen.
`loose_set_ups`: declarations of MCP servers are sent as the user has written them, and an empty
list as an object or null."""

_KNOWN_CLIENTS: Final[Mapping[str, set[Behaviour]]] = {
    # Users declare MCP servers in Lisp, and get what they write: `nil` is null.
    "*agent-shell*": {"loose_set_ups"},
    # 19.22.0: what comes between turns is dropped; an option is a key of its kind, labelled by the
    # kind, and content other than a diff is not shown (tried). Users declare MCP servers in Lua:
    # `env = {K = "v"}` is an object, an empty table `{}`.
    "codecompanion*": {"lose_late_messages", "hide_plans", "options_by_kind", "loose_set_ups"},
    # 0.1.15, 0.19.1: asks with the title alone, for yes or no: the first option of a kind (tried).
    "acpx": {"hide_plans", "options_by_kind"},
    # avante.nvim of August 2026 tells no name: each option has a button, but what is sent is the
    # last one of its kind (read).
    "": {"options_by_kind"},
}
"""By a glob for the name in lower case; empty: clients that do not tell their name."""


def is_known_to(client: Announced, behaviour: Behaviour) -> bool:
    """Whether a client is known for a behaviour."""
    name = client.name.lower()
    return any(
        behaviour in known and fnmatch.fnmatchcase(name, glob)
        for glob, known in _KNOWN_CLIENTS.items()
    )


_FILES: Final = {"readTextFile": True, "writeTextFile": True}


def _request(name: str | None, version: str = "unknown", **capabilities: Any) -> Mapping[str, Any]:
    info = {} if name is None else {"clientInfo": {"name": name, "version": version}}
    return {"protocolVersion": 1, "clientCapabilities": capabilities, **info}


EDITOR_REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "zed": _request(
        "zed",
        fs=_FILES,
        terminal=True,
        auth={"terminal": True},
        session={"configOptions": {"boolean": {}}},
        elicitation={"form": {}, "url": {}},
    ),
    "vscode": _request("vscode-acp-client", fs=_FILES, terminal=True),
    "acpx": _request("acpx", fs=_FILES, terminal=True),
    "codecompanion": _request("CodeCompanion.nvim", fs=_FILES),
    "avante": _request(None, fs=_FILES),
    "toad": _request("toad", "0.6.20", fs=_FILES, terminal=True),
    "agent-shell": _request("agent-shell", "0.79.2", fs=_FILES, elicitation={"form": {}}),
}
"""The params of `initialize` by the name of the editor, as `install` has it, as far as adapters are
decided by them. Read in the sources, in the newest version of November 2026."""
