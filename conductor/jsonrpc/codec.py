"""Decode a line to a message, a batch, or a description of malformed input.

In: one line without its newline. Out: exactly one frame, never an exception. Invalid input becomes
`Malformed`: a client gets an error response for it, a component only a log entry (as the Rust
reference conductor; JSON-RPC 2.0 §5.1, §6). The id of a malformed line is needed to answer a
request, and to settle the request that a broken response answers: it is read at both ends.

msgspec decodes the envelope and checks the syntax of the whole line. Two gaps are closed here, off
the fast path: msgspec does not check UTF-8 inside raw values, and it refuses escaped lone
surrogates, which JavaScript agents do send (half an emoji at the end of a chunk) and which the JSON
grammar allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.jsonrpc.json_text import (
    has_surrogate,
    substitute_surrogates,
    utf8_error,
    utf8_error_in_copy,
)
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
    Id,
    Message,
)

__all__ = [
    "AMBIGUOUS_SURROGATES",
    "DECODE_ERRORS",
    "Batch",
    "Frame",
    "Malformed",
    "NotificationEnvelope",
    "decode",
    "decode_envelope",
    "decode_message",
    "decode_notification",
    "detached_copy",
    "excerpt_of",
    "oversized_line",
    "strip_ansi",
    "validate",
]


class Malformed(msgspec.Struct, frozen=True):
    """A line, or a member of a batch, that is not a JSON-RPC message.

    `code` is -32700 (not JSON) or -32600 (not JSON-RPC). `id` is `UNSET` if it could not be read.
    `response`: recognizably a response; it is never answered, but settles the request with its id.
    `lacks_payload`: no method, result or error; settles the request with its id too, if there is
    one. `too_deep`: possibly valid, but nested too deeply for msgspec, or with surrogates that
    cannot be substituted.
    """

    code: int
    reason: str
    excerpt: str
    id: Id | UnsetType = UNSET
    response: bool = False
    lacks_payload: bool = False
    too_deep: bool = False


class Batch(msgspec.Struct, frozen=True):
    """A JSON-RPC batch (§6): its members in order, at least one, decoded on iteration."""

    raw: list[Raw] | list[bytes]

    @property
    def members(self) -> Iterator[Message | Malformed]:
        return map(_member, map(bytes, self.raw))


Frame: TypeAlias = Message | Malformed | Batch


_SHORT: Final = 2048
_EXCERPT: Final = 200
_LINE_END: Final = 4096
_MAX_ID: Final = 2**63
_MAX_COMMAS: Final = 1_000_000
"""Commas of a batch; a longer one is refused before it is decoded: each member takes 56 bytes."""
decode_envelope: Final[Callable[[bytes], Message]] = msgspec.json.Decoder(Message).decode
"""A line as a `Message`, not yet `validate`ed; raises one of `DECODE_ERRORS` for anything else."""


class NotificationEnvelope(msgspec.Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """A notification with params, and no other member."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Raw


decode_notification: Final[Callable[[bytes], NotificationEnvelope]] = msgspec.json.Decoder(
    NotificationEnvelope
).decode
"""A line as a `NotificationEnvelope`; raises one of `DECODE_ERRORS` for every other message."""

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of a msgspec decoder for invalid input. `RecursionError` depends on the depth of the call
stack: the same text may be decodable from fewer calls down."""

_decode_members = msgspec.json.Decoder(list[Raw]).decode
_decode_id = msgspec.json.Decoder(int | str | None).decode
_containers = frozenset(b"{[")
# Patterns are compiled when they are used first.
_scalar = rb'("(?:[^"\\]|\\.)*"|-?\d+|null)(?:\.0+)?'
_first_members = rb'\s*\{(?:\s*"(?:jsonrpc|id|method)"\s*:\s*%b\s*[,}])*' % _scalar
_first_id = rb'"id"\s*:\s*' + _scalar
# In valid JSON, `,"id":5}` at the very end can only be the last member of the outermost object.
_last_id = rb',\s*"id"\s*:\s*%b\s*\}\s*$' % _scalar
_ansi = rb"^(?:\xef\xbb\xbf|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))+"
AMBIGUOUS_SURROGATES: Final = "lone surrogates, and escapes of too many other Unicode blocks"


def decode(line: bytes, *, may_be_copy: bool = False) -> Frame:
    """The frame of a line. `may_be_copy`: the line is compared with others, which spares most of
    the check of a large copy (`utf8.py`)."""
    try:
        message = decode_envelope(line)
    except DECODE_ERRORS as exc:
        return _decode_slow(line, exc)
    check = utf8_error_in_copy if may_be_copy else utf8_error
    if not line.isascii() and (problem := check(line)):  # `isascii` spares a call
        return Malformed(PARSE_ERROR, problem, excerpt_of(line), *_recover_id(message))
    if len(line) > _SHORT:
        message = _detached_message(message, len(line))
    return validate(message, line)


def detached_copy(value: Raw, size: int) -> Raw:
    """The value, copied if it is less than three quarters of a text of `size` bytes, which it would
    otherwise keep in memory, uncounted. Of a short text, all may be kept."""
    return value.copy() if size > _SHORT and 4 * len(value) < 3 * size else value


def strip_ansi(line: bytes) -> bytes:
    """The line without the terminal escapes (or byte order mark) that some programs print first."""
    return re.sub(_ansi, b"", line)


def decode_message(line: bytes) -> Message | None:
    """The message of a line, before `validate`; `None` for any other frame."""
    try:
        return decode_envelope(line)
    except DECODE_ERRORS:
        frame = decode(line)
        return frame if isinstance(frame, Message) else None


def validate(message: Message, line: bytes | Raw) -> Message | Malformed:
    """Check the rules of JSON-RPC that types do not express."""
    if message.method is not UNSET:
        if message.result is not UNSET or message.error is not UNSET:
            return _invalid(message, line, "a message has either a method or a result or error")
        if message.params is not UNSET and memoryview(message.params)[0] not in _containers:
            if bytes(message.params) == b"null":
                return msgspec.structs.replace(message, params=UNSET)
            return _invalid(message, line, "params must be an object or an array")
        id = message.id
        if type(id) is int and not -_MAX_ID <= id < _MAX_ID:
            return _invalid(message, line, "an id must fit 64 bits")
        return message
    if message.error is not UNSET:
        if message.result is not UNSET:
            return _invalid(message, line, "a response has either a result or an error")
        try:
            msgspec.json.decode(message.error, type=ErrorObject)
        except DECODE_ERRORS:
            return _invalid(message, line, "an error needs an integer code and a string message")
    elif message.result is UNSET:
        problem = "neither a method nor a result nor an error"
        return msgspec.structs.replace(_invalid(message, line, problem), lacks_payload=True)
    if message.id is UNSET:
        return _invalid(message, line, "a response without an id")
    return message


def _invalid(message: Message, line: bytes | Raw, reason: str) -> Malformed:
    id, response = _recover_id(message)
    return Malformed(INVALID_REQUEST, reason, excerpt_of(line), id, response)


def _recover_id(message: Message) -> tuple[Id | UnsetType, bool]:
    answers = message.result is not UNSET or message.error is not UNSET
    return message.id, answers and message.method is UNSET


def _decode_slow(line: bytes, exc: Exception) -> Frame:
    """Decode all but plain messages: batches, lone surrogates, other JSON, invalid JSON."""
    text = line.lstrip(b" \t\r")
    if text[:1] == b"[":
        return _decode_batch(line)
    if utf8_error(line) is None and has_surrogate(line):
        return _decode_with_surrogates(line)
    return _describe_malformed(line, exc)


def _decode_batch(line: bytes) -> Frame:
    if line.count(b",") > _MAX_COMMAS:
        return Malformed(INVALID_REQUEST, f"a batch with over {_MAX_COMMAS} commas", "[")
    try:
        members = _decode_members(line)
    except DECODE_ERRORS as exc:
        if utf8_error(line) is None and has_surrogate(line):
            return _decode_with_surrogates(line)
        return _describe_malformed(line, exc)
    if not members:
        return Malformed(INVALID_REQUEST, "an empty batch", "[]")
    return Batch(members)


def _member(raw: bytes) -> Message | Malformed:
    if raw[:1] == b"[":
        return Malformed(INVALID_REQUEST, "a batch inside a batch", excerpt_of(raw))
    frame = decode(raw)
    assert not isinstance(frame, Batch)
    if isinstance(frame, Malformed) and frame.code == PARSE_ERROR:
        return msgspec.structs.replace(frame, code=INVALID_REQUEST)
    return frame


def _describe_malformed(line: bytes, exc: Exception) -> Malformed:
    """Describe an invalid line: the reason, and its id if that can be read."""
    code, reason, too_deep = PARSE_ERROR, utf8_error(line), False
    if reason is None and isinstance(exc, RecursionError):
        code, reason, too_deep = INVALID_REQUEST, "nested too deeply", True
    elif reason is None and isinstance(exc, msgspec.ValidationError):
        code = INVALID_REQUEST
    known = _visible_fields(line, line)
    return Malformed(code, reason or str(exc), excerpt_of(line), *known, too_deep=too_deep)


def oversized_line(head: bytes, tail: bytes, size: int, limit: int) -> Malformed:
    """The description of a line over the limit, by its two ends."""
    reason = f"message of {size} bytes is over the limit of {limit} bytes (max_message_bytes)"
    return Malformed(INVALID_REQUEST, reason, excerpt_of(head), *_visible_fields(head, tail))


def _visible_fields(head: bytes, tail: bytes) -> tuple[Id | UnsetType, bool]:
    """The id of a line that cannot be decoded, if it is among its first scalar members or is its
    last member; and whether it is a response."""
    head = head[:_LINE_END]
    first = re.match(_first_members, head)
    if first is None:
        return UNSET, False
    known = first[0]
    result = re.match(rb'\s*(?:"id"\s*:[^,]*,)?\s*"(?:result|error)"', head[len(known) :])
    found = re.search(_first_id, known) or re.search(_last_id, tail[-_LINE_END:])
    try:
        id: Id | UnsetType = UNSET if found is None else _decode_id(found[1])
    except DECODE_ERRORS:  # a lone surrogate, which cannot be encoded again
        id = UNSET
    return id, result is not None and b'"method"' not in known


def excerpt_of(line: bytes | Raw) -> str:
    """The beginning of a line, for the log."""
    start = bytes(memoryview(line)[: _EXCERPT + 1]).removesuffix(b"\n")
    text = start.decode(errors="backslashreplace")
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"


def _decode_with_surrogates(line: bytes) -> Frame:
    """The frame of a line that holds escaped surrogates; payloads are the line's own bytes."""
    hidden = substitute_surrogates(line)
    known = _visible_fields(line, line)
    if hidden is None:
        return Malformed(
            INVALID_REQUEST, AMBIGUOUS_SURROGATES, excerpt_of(line), *known, too_deep=True
        )
    frame = decode(hidden.text)
    if isinstance(frame, Batch):
        return Batch([hidden.raw(each) for each in frame.raw])
    if isinstance(frame, Malformed):
        return msgspec.structs.replace(frame, id=known[0], excerpt=excerpt_of(line))
    names = {name: getattr(frame, name) for name in ("id", "method")}
    names = {name: hidden.encodable(each) for name, each in names.items() if type(each) is str}
    if None in names.values():
        reason = "a lone surrogate in an id or a method"
        return Malformed(INVALID_REQUEST, reason, excerpt_of(line), *known)
    payloads = {name: getattr(frame, name) for name in ("params", "result", "error")}
    raw = {name: Raw(hidden.raw(each)) for name, each in payloads.items() if each is not UNSET}
    return msgspec.structs.replace(frame, **names, **raw)


def _detached_message(message: Message, size: int) -> Message:
    for each in (message.params, message.result, message.error):
        if each is not UNSET and 4 * len(each) < 3 * size:
            break
    else:
        return message  # nearly always
    payloads = {name: getattr(message, name) for name in ("params", "result", "error")}
    kept = {name: detached_copy(each, size) for name, each in payloads.items() if each is not UNSET}
    return msgspec.structs.replace(message, **kept)
