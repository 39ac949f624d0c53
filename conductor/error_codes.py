"""Codes of JSON-RPC errors: those of JSON-RPC 2.0, of ACP, and of `serve`."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AUTHENTICATION_REQUIRED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "PROTOCOL_VERSION",
    "REQUEST_CANCELLED",
    "RESOURCE_NOT_FOUND",
]

PARSE_ERROR: Final = -32700
"""A message is not JSON. The sender is at fault: the log shows how the message begins."""
INVALID_REQUEST: Final = -32600
"""A message is not a request of JSON-RPC, or comes at the wrong time, such as before
`initialize`."""
METHOD_NOT_FOUND: Final = -32601
"""The agent or a proxy does not know the method: `check --start` shows what each supports."""
INVALID_PARAMS: Final = -32602
"""The params do not fit the method; `data` or the message says which."""
INTERNAL_ERROR: Final = -32603
"""A component failed or did not start, or a proxy raised an exception. `data` names the component,
its place in the chain file and the last lines of its stderr."""
AUTHENTICATION_REQUIRED: Final = -32000
"""The agent requires a login: log in with the editor, or with the agent's program in a terminal."""
RESOURCE_NOT_FOUND: Final = -32002
"""A session or file does not exist."""
PROTOCOL_VERSION: Final = -32022
"""The agent chose a version of the protocol that the client does not speak."""
REQUEST_CANCELLED: Final = -32800
"""The request was cancelled by its sender."""
