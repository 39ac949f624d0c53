"""Decode a line to a message, a batch, or a description of malformed input.

In: one line without its newline. Out: exactly one frame, never an exception. Invalid input becomes
`Malformed`: a client gets an error response for it, a component only a log entry (as the Rust
reference conductor; JSON-RPC 2.0 §5.1, §6); `malformed` finds its id as far as it can be read.

msgspec decodes the envelope and checks the syntax of the whole line. Two gaps are closed here, off
the fast path: msgspec does not check UTF-8 inside raw values, and it refuses escaped lone
surrogates, which JavaScript agents do send (half an emoji at the end of a chunk) and which the JSON
grammar allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.jsonrpc.malformed import (
    Malformed,
    excerpt_of,
    id_at_end,
    loose_fields,
    visible_fields,
)
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
    Id,
    Message,
)
from conductor.jsonrpc.surrogates import has_surrogate, substitute_surrogates
from conductor.jsonrpc.utf8 import utf8_error, utf8_error_in_copy

__all__ = [
    "AMBIGUOUS_SURROGATES",
    "DECODE_ERRORS",
    "MAX_BATCH_MEMBERS",
    "Batch",
    "Frame",
    "NotificationEnvelope",
    "decode",
    "decode_envelope",
    "decode_message",
    "decode_notification",
    "detached_copy",
    "strip_ansi",
    "validate",
]


class Batch(msgspec.Struct, frozen=True):
    """A JSON-RPC batch (§6): its members in order, at least one.

    `raw` has the members as written. They are decoded on iteration: a line may hold millions of
    them, and the connection limits their number.
    """

    raw: list[Raw] | list[bytes]

    @property
    def members(self) -> Iterator[Message | Malformed]:
        return map(_member, map(bytes, self.raw))

    def answers(self, most: int) -> Iterator[Message]:
        """The responses among the members; decodes at most `most` members."""
        may_be = (raw for raw in map(bytes, self.raw) if re.search(_MAY_BE_RESPONSE, raw))
        for raw in islice(may_be, most):
            member = _member(raw)
            if type(member) is Message and member.method is UNSET:
                yield member


Frame: TypeAlias = Message | Malformed | Batch


_SHORT: Final = 2048
_MAX_EXACT_FLOAT: Final = 2.0**53
_MAX_ID: Final = 2**63
_MAX_COMMAS: Final = 1_000_000
"""Commas in a batch; of a longer one, only the first `MAX_BATCH_MEMBERS` members are read (40 bytes
each)."""
_MEMBERS_PER_STEP: Final = 25_000
"""Members of such a batch that one decoder call cuts out."""
MAX_BATCH_MEMBERS: Final = 100_000
"""Upper bound of `max_batch`."""
_MAY_BE_RESPONSE: Final = rb'"result"|"error"|\\u'
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

# Patterns are compiled when they are used first.
_decode_members = msgspec.json.Decoder(list[Raw]).decode
_containers = frozenset(b"{[")
_whitespace = rb"[ \t\r\n]*"
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
    try:
        members = _first_members(line) or _decode_members(line)
    except DECODE_ERRORS as exc:
        if utf8_error(line) is None and has_surrogate(line):
            return _decode_with_surrogates(line)
        return _describe_malformed(line, exc)
    if not members:
        return Malformed(INVALID_REQUEST, "an empty batch", "[]")
    return Batch(members)


def _first_members(line: bytes) -> list[Raw] | list[bytes] | None:
    """The first `MAX_BATCH_MEMBERS` + 1 members of a batch that may have millions; `None` for a
    shorter batch. The rest is checked for syntax, and no object is created for it."""
    if line.count(b",") <= _MAX_COMMAS:
        return None
    found: list[bytes] = []
    rest = line
    while len(found) <= MAX_BATCH_MEMBERS:
        some = msgspec.structs.astuple(_first_decoder().decode(rest))
        some = some[: some.index(UNSET)] if UNSET in some else some
        found += map(bytes, some)
        if len(some) < _MEMBERS_PER_STEP or len(found) > MAX_BATCH_MEMBERS:
            break
        rest = _skip_items(rest, some)
    return found[: MAX_BATCH_MEMBERS + 1]


@cache
def _first_decoder() -> msgspec.json.Decoder[Any]:
    """A decoder for the first `_MEMBERS_PER_STEP` items of an array; skips the others."""
    fields = [(f"item{index}", Raw | UnsetType, UNSET) for index in range(_MEMBERS_PER_STEP)]
    struct = msgspec.defstruct("_First", fields, array_like=True)
    return msgspec.json.Decoder(struct)


def _skip_items(array: bytes, items: Sequence[Raw]) -> bytes:
    """The array without its first items."""
    index = _skip_whitespace(array, 0) + 1
    for item in items:
        index = _skip_whitespace(array, _skip_whitespace(array, index) + len(item)) + 1
    return b"[" + array[index:]


def _skip_whitespace(text: bytes, index: int) -> int:
    match = re.compile(_whitespace).match(text, index)
    assert match is not None
    return match.end()


def _member(raw: bytes) -> Message | Malformed:
    if raw[:1] == b"[":
        return Malformed(INVALID_REQUEST, "a batch inside a batch", excerpt_of(raw))
    frame = decode(raw)
    assert not isinstance(frame, Batch)
    if isinstance(frame, Malformed) and frame.code == PARSE_ERROR:
        return msgspec.structs.replace(frame, code=INVALID_REQUEST)
    return frame


def _describe_malformed(line: bytes, exc: Exception) -> Message | Malformed:
    """Describe an invalid line: the reason, and its id if that can be read."""
    excerpt = excerpt_of(line)
    problem = utf8_error(line)
    if problem is None and isinstance(exc, RecursionError):
        id, response = loose_fields(line)
        if id is UNSET:
            id = id_at_end(line)
        return Malformed(INVALID_REQUEST, "nested too deeply", excerpt, id, response, too_deep=True)
    if problem is None and isinstance(exc, msgspec.ValidationError):
        if (message := _with_float_id(line)) is not None:
            return validate(message, line)
        return Malformed(INVALID_REQUEST, str(exc), excerpt, *loose_fields(line))
    return Malformed(PARSE_ERROR, problem or str(exc), excerpt, *visible_fields(line))


class _FloatId(msgspec.Struct, gc=False):
    """A message with an id written as `3.0`, which JavaScript equates with 3."""

    jsonrpc: Literal["2.0"]
    id: float
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


def _with_float_id(line: bytes) -> Message | None:
    try:
        found = msgspec.json.decode(line, type=_FloatId)
    except DECODE_ERRORS:
        return None
    id = _integral(found.id)
    if type(id) is not int:
        return None
    message = Message("2.0", id, found.method, found.params, found.result, found.error)
    return _detached_message(message, len(line))


def _integral(id: Any) -> Any:
    """An id like `3.0` as an integer; any other as it is."""
    exact = isinstance(id, float) and id.is_integer() and abs(id) <= _MAX_EXACT_FLOAT
    return int(id) if exact else id


def _decode_with_surrogates(line: bytes) -> Frame:
    """The frame of a line that holds escaped surrogates; payloads are the line's own bytes."""
    hidden = substitute_surrogates(line)
    if hidden is None:
        known = visible_fields(line)
        return Malformed(
            INVALID_REQUEST, AMBIGUOUS_SURROGATES, excerpt_of(line), *known, too_deep=True
        )
    frame = decode(hidden.text)
    if isinstance(frame, Batch):
        return Batch([hidden.raw(each) for each in frame.raw])
    id = hidden.encodable(frame.id) if isinstance(frame.id, str) else frame.id
    unwritable = id is None and frame.id is not None
    if isinstance(frame, Malformed):
        id = UNSET if unwritable else id
        return msgspec.structs.replace(frame, id=id, excerpt=excerpt_of(line))
    method = frame.method if frame.method is UNSET else hidden.encodable(frame.method)
    if unwritable or method is None:
        answers = _recover_id(frame)[1]
        return Malformed(INVALID_REQUEST, "Invalid request", excerpt_of(line), UNSET, answers)
    payloads = {name: getattr(frame, name) for name in ("params", "result", "error")}
    raw = {name: Raw(hidden.raw(each)) for name, each in payloads.items() if each is not UNSET}
    return msgspec.structs.replace(frame, id=id, method=method, **raw)


def _detached_message(message: Message, size: int) -> Message:
    for each in (message.params, message.result, message.error):
        if each is not UNSET and 4 * len(each) < 3 * size:
            break
    else:
        return message  # nearly always
    payloads = {name: getattr(message, name) for name in ("params", "result", "error")}
    kept = {name: detached_copy(each, size) for name, each in payloads.items() if each is not UNSET}
    return msgspec.structs.replace(message, **kept)
