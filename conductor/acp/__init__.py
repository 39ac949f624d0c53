"""Facts of the Agent Client Protocol: sets of methods, and the session ids of a message. Pure.

Session ids are read only here, from the `sessionId` member of params or of a result, lone
surrogates included.
`session_id_of` is for routing and records, and never raises.
`unambiguous_session_id` is for access control: it refuses params that two parsers could read
differently, and recognizes every spelling that an agent may accept for `sessionId` (Go ignores
case, the Python SDK also takes `session_id`).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.json_object import decode_with_surrogates, member_at, object_members
from conductor.jsonrpc.json_text import has_surrogate, substitute_surrogates
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
    "AmbiguousSessionId",
    "announced_subagent",
    "asks_for_history",
    "named_sessions",
    "session_id_of",
    "unambiguous_session_id",
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


class AmbiguousSessionId(ValueError):
    """Two parsers could read different session ids."""


class _HasSession(msgspec.Struct, gc=False):
    sessionId: str


class _MayHaveSession(msgspec.Struct, gc=False):
    sessionId: str | None = None


class _AnnouncedSubagent(msgspec.Struct, gc=False):
    sessionUpdate: str
    sessionId: str


class _SubagentParams(msgspec.Struct, gc=False):
    sessionId: str
    update: _AnnouncedSubagent


class _NamedMember:
    """The value of a member that names a session."""


_NAMED_MEMBER: Final = _NamedMember()

_decode: Final = msgspec.json.Decoder(_HasSession).decode
_decode_optional: Final = msgspec.json.Decoder(_MayHaveSession).decode
_decode_subagent: Final = msgspec.json.Decoder(_SubagentParams).decode
_SUBAGENT_UPDATE: Final = b"subagent_update"
_decode_name: Final = msgspec.json.Decoder(str).decode
_MAX_NAMES: Final = 1000
"""Most members, at any depth, that are named like a session id; more are refused."""
_MAX_SPELLINGS: Final = 8


def _spelling_pattern(letters: str) -> str:
    """A pattern for all JSON spellings of these letters, in either case, escapes included."""
    any_of = {"s": "|\xc5\xbf|\\\\u017[fF]"}  # the capital of U+017F is S
    return "".join(
        f"(?:[{c}{c.upper()}]|\\\\u00(?i:{ord(c):02x}|{ord(c.upper()):02x}){any_of.get(c, '')})"
        for c in letters
    )


@cache
def _names() -> re.Pattern[bytes]:
    """The names of members that may hold a session id. Compiling it takes 0.6 ms, which a start
    does without."""
    spelling = rf'("{_spelling_pattern("session")}(?:_|\\u005[fF])?{_spelling_pattern("id")}")'
    return re.compile((spelling + r"[ \t\r\n]*:").encode("latin-1"))


def session_id_of(payload: Payload | None) -> str | None:
    """The session id in raw params or a raw result; `None` if there is none."""
    if payload is None:
        return None
    try:
        return _decode(payload).sessionId
    except DECODE_ERRORS:
        if not has_surrogate(payload):
            return None
    try:
        return unambiguous_session_id(payload)
    except AmbiguousSessionId:
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


def unambiguous_session_id(payload: Payload | None) -> str | None:
    """The session id in raw params or a raw result; `None` if there is none.

    Raises `AmbiguousSessionId` if a peer might read another one: the payload is not an object, the
    member occurs twice in any spelling, or its value is neither a string nor null.
    """
    return None if payload is None else _read_session_id(bytes(payload))[0]


def named_sessions(params: Payload | None) -> list[str]:
    """The sessions that raw params name: their own, and those that an update in them is about, such
    as that of a subagent. Raises `AmbiguousSessionId`."""
    text = bytes(params or b"{}")
    own, is_alone = _read_session_id(text)
    named: list[Any] = [own]
    if own is None or not is_alone:
        try:
            update = object_members(text).get("update", b"null")
            if update.startswith(b"{"):
                unambiguous_session_id(update)
                members = object_members(update).items()
                named += [decode_value(each) for name, each in members if _is_session_id(name)]
        except ValueError as exc:
            raise AmbiguousSessionId(str(exc)) from None
    return [each for each in named if isinstance(each, str)]


def _is_session_id(name: str) -> bool:
    """Also `senderSessionId`."""
    return name.lower().replace("_", "").endswith("sessionid")


def _read_session_id(text: bytes) -> tuple[str | None, bool]:
    """As `unambiguous_session_id`, and whether no other member, at any depth, has the name."""
    try:
        if _has_canonical_spelling(text):
            return _decode_optional(text).sessionId, True
        found = _session_ids_in(text)
    except DECODE_ERRORS as exc:
        raise AmbiguousSessionId(str(exc)) from None
    if len(found) > 1:
        raise AmbiguousSessionId(f"sessionId occurs {len(found)} times")
    return (found[0] if found else None), False


def _has_canonical_spelling(text: bytes) -> bool:
    """Whether the name occurs once at most, and in no other spelling; false if that is not certain.

    Takes 1 ms for each MiB of text. `isascii` and the search for one byte take a tenth of the time
    of the search that they save.
    """
    if b"\\" in text and b"\\u" in text:
        return False
    if not text.isascii() and b"\xc5\xbf" in text:
        return False
    lower = text.lower()
    names = 0
    index = -1
    for _ in range(_MAX_NAMES):
        index = lower.find(b"session", index + 1)
        if index < 0:
            return True
        if lower.startswith((b'id"', b'_id"'), index + 7):
            names += 1
            if names > 1 or not text.startswith(b'"sessionId"', index - 1):
                return False
    return False


def _session_ids_in(text: bytes) -> list[str | None]:
    """The values of all members of the object that name a session.

    No Python object is created for any other value: there may be millions, and all clients would
    wait."""
    hidden = substitute_surrogates(text) if has_surrogate(text) else None
    if hidden is not None:
        text = hidden.text
    matches = list(islice(_names().finditer(text), _MAX_NAMES + 1))
    names = sorted({_decode_name(match[1]) for match in matches})
    if len(matches) > _MAX_NAMES or len(names) > _MAX_SPELLINGS:
        raise AmbiguousSessionId("sessionId occurs too often")
    values: list[str | None] = []

    def collect(_: type, value: Any) -> _NamedMember:
        values.append(value)
        return _NAMED_MEMBER

    checked, collecting = _decoders_for(tuple(names))
    checked.decode(text)  # raises unless each value is a string or null
    msgspec.json.Decoder(collecting, dec_hook=collect).decode(text)
    if hidden is None:
        return values
    written = [None if each is None else hidden.encodable(each) for each in values]
    if written.count(None) > values.count(None):
        raise AmbiguousSessionId("a lone surrogate")
    return written


@lru_cache(64)
def _decoders_for(names: tuple[str, ...]) -> tuple[msgspec.json.Decoder[Any], type]:
    """For objects with members of these names: a decoder that checks their types, and the type that
    collects their values."""
    rename = {f"name{index}": name for index, name in enumerate(names)}
    checked, collecting = (
        msgspec.defstruct("_Names", [(each, kind, UNSET) for each in rename], rename=rename)
        for kind in (str | None | UnsetType, _NamedMember | UnsetType)
    )
    return msgspec.json.Decoder(checked), collecting
