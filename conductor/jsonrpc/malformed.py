"""Describe a line that is not a message: why, and which request it is or answers, if that shows.

The id is needed to answer a request that cannot be read, and to settle the request that a broken
response answers. Of a line that cannot be parsed, only the members before its first large one are
read, and an id at its very end. Pure.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from conductor.jsonrpc.messages import INVALID_REQUEST, Id

__all__ = [
    "Malformed",
    "excerpt_of",
    "id_at_end",
    "loose_fields",
    "oversized_line",
    "visible_fields",
]

_EXCERPT: Final = 200
_LINE_END: Final = 4096


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


def oversized_line(head: bytes, tail: bytes, size: int, limit: int) -> Malformed:
    """The description of a line over the limit, with its id if either end of the line shows it."""

    reason = f"message of {size} bytes is over the limit of {limit} bytes (max_message_bytes)"
    simple = dict(_simple_members(head))
    id: Id | UnsetType = simple.get("id", UNSET)
    if id is UNSET:
        id = id_at_end(tail)
    response = "method" not in simple and bool(re.match(_result_first, head))
    return Malformed(INVALID_REQUEST, reason, excerpt_of(head), id, response)


class _LooseEnvelope(msgspec.Struct, gc=False):
    """An envelope with members of any type."""

    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_id = msgspec.json.Decoder(int | str | None).decode


def loose_fields(line: bytes) -> tuple[Id | UnsetType, bool]:
    """The id of a line that is JSON, and whether it is a response."""
    try:
        loose = msgspec.json.decode(line, type=_LooseEnvelope)
    except (msgspec.MsgspecError, RecursionError):
        return visible_fields(line)
    answers = loose.method is UNSET and (loose.result is not UNSET or loose.error is not UNSET)
    try:
        return (UNSET if loose.id is UNSET else _decode_id(loose.id)), answers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return UNSET, answers


def visible_fields(line: bytes) -> tuple[Id | UnsetType, bool]:
    """The id of a line that cannot be parsed to its end, and whether it is a response."""
    head = line[:_LINE_END]
    simple = dict(_simple_members(head))
    return simple.get("id", UNSET), "method" not in simple and bool(re.match(_result_first, head))


def id_at_end(line: bytes) -> Id | UnsetType:
    """The id of a line of which it is the last member; `UNSET` if it is not."""
    match = re.search(_last_id, line[-_LINE_END:])
    return UNSET if match is None else _scalar(match[1])


# Patterns are compiled when they are used first.
_scalar_member = (
    rb'[\s{,]*"(jsonrpc|id|method)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+(?![\d.eE])|null)(?=\s*[,}])'
)
_result_first = (
    rb'\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"(?:[^"\\]|\\.)*"|-?\d+|null)\s*,)*'
    rb'\s*"(?:result|error)"'
)
# In valid JSON, `,"id":5}` at the very end can only be the last member of the outermost object.
_last_id = rb',\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$'


def _simple_members(head: bytes) -> list[tuple[str, Id]]:
    """The scalar members that an object starts with, before its first large one."""
    found: list[tuple[str, Id]] = []
    index = 0
    member = re.compile(_scalar_member)
    while match := member.match(head, index):
        value = _scalar(match[2])
        if value is UNSET:
            break
        found.append((match[1].decode(), value))
        index = match.end()
    return found


def _scalar(text: bytes) -> Id | UnsetType:
    """An id (or a method); `UNSET` if it cannot be encoded again."""
    try:
        id: Id = _decode_id(text)
        return id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return UNSET


def excerpt_of(line: bytes | Raw) -> str:
    """The beginning of a line, for the log."""
    text = bytes(memoryview(line)[: _EXCERPT + 1]).decode(errors="backslashreplace")
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "…"
