"""Announcements of a client or an agent in `initialize`, for protocol versions 1 and 2. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.messages import Payload

__all__ = ["ANNOUNCED_METHODS", "Announced", "announced_by_agent", "announced_by_client"]

ANNOUNCED_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "elicitation/create": ("elicitation",),
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/create": ("terminal",),
    "terminal/kill": ("terminal",),
    "terminal/output": ("terminal",),
    "terminal/release": ("terminal",),
    "terminal/wait_for_exit": ("terminal",),
}
"""The requests that a client gets only if it announces a capability: its path. Version 2 has no
files and terminals of the client."""


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """Version, capabilities and name of a client or an agent."""

    version: int
    capabilities: dict[str, Any]
    """Raw, as announced: versions 1 and 2 have different paths."""
    name: str = ""
    auth_methods: frozenset[str] = frozenset()
    """Ids of an agent's login methods."""
    program_version: str = ""
    """The version of the program, not of the protocol."""

    def has(self, *path: str) -> bool:
        """Whether the member is there and is neither `false` nor `null`."""
        value: Any = self.capabilities
        for member in path:
            value = value.get(member) if isinstance(value, dict) else None
        return value is not None and value is not False

    def takes(self, method: str) -> bool:
        """Whether a client takes this request of `ANNOUNCED_METHODS`."""
        return self.has(*ANNOUNCED_METHODS[method])


def announced_by_client(params: Payload | None) -> Announced:
    """From the raw params of `initialize`."""
    return _announced(params, "clientCapabilities", "clientInfo")


def announced_by_agent(result: Payload | None) -> Announced:
    """From the raw result of `initialize`."""
    return _announced(result, "agentCapabilities", "agentInfo")


def _announced(raw: Payload | None, capabilities: str, info: str) -> Announced:
    try:
        members = decode_value(raw or b"{}")
    except DECODE_ERRORS:
        members = {}
    members = _object(members)
    version = members.get("protocolVersion")
    methods = members.get("authMethods")
    ids = [_object(each).get("id") for each in methods] if isinstance(methods, list) else []
    told = _object(members.get(info, members.get("info")))
    name, program_version = told.get("name"), told.get("version")
    return Announced(
        version=version if type(version) is int else 1,
        capabilities=_object(members.get(capabilities, members.get("capabilities"))),
        name=name if isinstance(name, str) else "",
        auth_methods=frozenset(each for each in ids if isinstance(each, str)),
        program_version=program_version if isinstance(program_version, str) else "",
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
