"""Facts of the Agent Client Protocol: sets of methods, and the session ids of a message. Pure.

Session ids are read only here, from the `sessionId` member of params or of a result, lone
surrogates included.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from conductor.json_values import Pairs, decode_pairs, decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.json_object import decode_with_surrogates, member_at, object_members
from conductor.jsonrpc.json_text import has_surrogate
from conductor.jsonrpc.messages import Payload

__all__ = [
    "CONNECTION_HEADER",
    "LOGIN_METHODS",
    "LOGOUT_METHODS",
    "MAX_AGENTS_ID",
    "MCP_METHODS",
    "NOTIFICATIONS",
    "PROMPT",
    "REQUESTS",
    "SESSION_CANCEL",
    "SESSION_CREATING_METHODS",
    "SESSION_END_METHODS",
    "SESSION_HEADER",
    "SESSION_SETTING_METHODS",
    "SESSION_SETUP_METHODS",
    "announced_subagent",
    "asks_for_history",
    "named_sessions",
    "session_id_of",
]

PROMPT: Final = "session/prompt"
SESSION_CANCEL: Final = "session/cancel"
SESSION_CREATING_METHODS: Final = frozenset({"session/new", "session/fork"})
"""Requests with a new session id in their result."""
SESSION_SETUP_METHODS: Final = SESSION_CREATING_METHODS | {"session/load", "session/resume"}
"""Requests that open a session on the connection when they succeed."""
SESSION_END_METHODS: Final = frozenset({"session/close", "session/delete"})
"""Requests that end a session when they succeed."""
SESSION_SETTING_METHODS: Final = frozenset(
    {"session/set_config_option", "session/set_mode", "session/set_model"}
)
"""Requests that set the mode, the model or an option of a session."""
LOGIN_METHODS: Final = frozenset({"authenticate", "auth/login"})
"""Requests of version 1 and 2 that log in."""
LOGOUT_METHODS: Final = frozenset({"logout", "auth/logout"})
MCP_METHODS: Final = frozenset({"mcp/connect", "mcp/message", "mcp/disconnect"})
"""Methods of MCP over ACP (RFD mcp-over-acp)."""
NOTIFICATIONS: Final = frozenset(
    {
        "$/cancel_request",
        "auth/status_update",
        "document/didChange",
        "document/didClose",
        "document/didFocus",
        "document/didOpen",
        "document/didSave",
        "elicitation/complete",
        "nes/accept",
        "nes/reject",
        "session/cancel",
        "session/update",
    }
)
"""Methods that are notifications in every version of the schema, and never requests."""
REQUESTS: Final = frozenset(
    {
        "auth/login",
        "auth/logout",
        "auth/status",
        "authenticate",
        "elicitation/create",
        "fs/read_text_file",
        "fs/write_text_file",
        "initialize",
        "logout",
        "mcp/connect",
        "mcp/disconnect",
        "nes/close",
        "nes/start",
        "nes/suggest",
        "providers/disable",
        "providers/list",
        "providers/set",
        "proxy/initialize",
        "session/archive",
        "session/close",
        "session/delete",
        "session/fork",
        "session/list",
        "session/load",
        "session/new",
        "session/options",
        "session/prompt",
        "session/request_permission",
        "session/resume",
        "session/set_config_option",
        "session/set_mode",
        "session/set_title",
        "session/status",
        "session/unarchive",
        "terminal/cancel",
        "terminal/create",
        "terminal/kill",
        "terminal/output",
        "terminal/release",
        "terminal/wait_for_exit",
        "tool_call/cancel",
    }
)
"""Methods that are requests in every version of the schema, and never notifications."""
CONNECTION_HEADER: Final = "acp-connection-id"
"""HTTP header with the id of a connection (RFD streamable HTTP and WebSocket, identity model)."""
SESSION_HEADER: Final = "acp-session-id"
"""HTTP header with the id of the session that a message belongs to (same section)."""

MAX_AGENTS_ID: Final = 1024
"""Characters of a session's id that the agent alone has named; longer ones are not remembered."""


class _HasSession(msgspec.Struct, gc=False):
    sessionId: str


class _AnnouncedSubagent(msgspec.Struct, gc=False):
    sessionUpdate: str
    sessionId: str


class _SubagentParams(msgspec.Struct, gc=False):
    sessionId: str
    update: _AnnouncedSubagent


_decode: Final = msgspec.json.Decoder(_HasSession).decode
_decode_subagent: Final = msgspec.json.Decoder(_SubagentParams).decode
_SUBAGENT_UPDATE: Final = b"subagent_update"
_SESSION_NAMES: Final = (b'essionid"', b'ession_id"')


def session_id_of(payload: Payload | None) -> str | None:
    """The session id in raw params or a raw result; `None` if there is none, or one that cannot be
    written as UTF-8."""
    if payload is None:
        return None
    try:
        return _decode(payload).sessionId
    except DECODE_ERRORS:
        if not has_surrogate(payload):
            return None
    try:
        session = decode_with_surrogates(payload, _decode).sessionId
        session.encode()
        return session
    except ValueError:
        return None


def asks_for_history(params: Payload | None) -> bool:
    """Whether a `session/resume` of version 2 asks for a replay (raw params)."""
    return member_at(params or b"", "replayFrom") not in (None, b"null")


def announced_subagent(params: Payload | None) -> tuple[str, str] | None:
    """The parent and the child of an update that announces the session of a subagent; `None` for
    any other update (raw params)."""
    raw = params if type(params) is bytes else bytes(params or b"")
    if raw.find(_SUBAGENT_UPDATE) < 0:
        return None
    try:
        found = decode_with_surrogates(raw, _decode_subagent)
    except ValueError:
        return None
    if found.update.sessionUpdate != _SUBAGENT_UPDATE.decode():
        return None
    return found.sessionId, found.update.sessionId


def message_names(method: str, payload: Payload | None) -> dict[str, object]:
    """Log fields that identify a message: its method, and its session if it has one."""
    session = session_id_of(payload)
    return {"method": method} if session is None else {"method": method, "session": session}


def named_sessions(params: Payload | None) -> list[str]:
    """The sessions that raw params name: their own, and those that an update in them is about, such
    as that of a subagent. Raises `ValueError` if they are no object, or nested too deeply.

    For access checks: names are read in every spelling that an agent or a client may accept (Go
    ignores case, the Python SDK also takes `session_id`), and `senderSessionId`. A name that occurs
    several times names several sessions: some parsers take the first value, others the last.
    """
    text = bytes(params or b"{}")
    members = object_members(text)
    named = list(members.items())
    if members.get("update", b"").startswith(b"{"):
        named += object_members(members["update"]).items()
    values = [decode_value(each) for name, each in named if _names_a_session(name)]
    lower = text.lower()
    if b"\\u0" in text or len(values) < sum(map(lower.count, _SESSION_NAMES)):
        values = _all_sessions(decode_pairs(text))  # or it is at a deeper place
    return [each for each in values if isinstance(each, str)]


def _all_sessions(pairs: Any) -> list[Any]:
    """The values of all members that name a session, in an object as `decode_pairs` returns it."""
    found = [value for name, value in pairs if _names_a_session(name)]
    for name, value in pairs:
        if name == "update" and isinstance(value, Pairs):
            found += [inner for each, inner in value if _names_a_session(each)]
    return found


def _names_a_session(name: str) -> bool:
    return name.casefold().replace("_", "").endswith("sessionid")
