"""`initialize` params of editors, as far as adapters are decided by them. Pure.

Read in the sources of the editors, in the newest version that was there in November 2026; an older
one may announce less. Names are those of `install`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["EDITOR_REQUESTS"]

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
"""The params of `initialize` by the name of the editor."""
