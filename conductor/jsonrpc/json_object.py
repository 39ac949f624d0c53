"""JSON objects as members of raw JSON: taken apart, put together, one member read or set; lists as
items. Pure.

Values keep their bytes, and no Python object is created for what is inside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from conductor.json_values import decode_value
from conductor.jsonrpc.codec import AMBIGUOUS_SURROGATES, DECODE_ERRORS
from conductor.jsonrpc.json_text import SubstitutedText, substitute_surrogates
from conductor.jsonrpc.messages import Payload

__all__ = [
    "decode_with_surrogates",
    "decoded_members",
    "join_members",
    "list_items",
    "member_at",
    "members_or_empty",
    "object_members",
    "with_member",
]

T = TypeVar("T")

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


def object_members(value: Payload) -> dict[str, bytes]:
    """The members of a JSON object, in order, each as raw JSON; of equal names the last.

    Raises `ValueError` for any other value, and for an object that is nested too deeply.
    """
    found, hidden = _decoded(value, _decode_object)
    if hidden is None:
        return {name: bytes(item) for name, item in found.items()}
    return {hidden.string(name): hidden.raw(item) for name, item in found.items()}


def list_items(value: Payload) -> list[bytes]:
    """The items of a JSON list, each as raw JSON. Raises `ValueError` for any other value, and for
    a list that is nested too deeply."""
    found, hidden = _decoded(value, _decode_list)
    return [bytes(item) if hidden is None else hidden.raw(item) for item in found]


def decode_with_surrogates(value: Payload, decode: Callable[[Payload], T]) -> T:
    """The value as `decode`, that of a decoder of structs, returns it; lone surrogates may be
    anywhere in the text. Raises `ValueError`."""
    found, hidden = _decoded(value, decode)
    return found if hidden is None else _with_surrogates(found, hidden)


def _with_surrogates(value: Any, hidden: SubstitutedText) -> Any:
    match value:
        case str():
            return hidden.string(value)
        case list():
            return [_with_surrogates(item, hidden) for item in value]
        case msgspec.Struct():
            names = value.__struct_fields__
            members = {name: _with_surrogates(getattr(value, name), hidden) for name in names}
            return msgspec.structs.replace(value, **members)
    return value


def _decoded(value: Payload, decode: Callable[[Payload], T]) -> tuple[T, SubstitutedText | None]:
    """The decoded value, with the lone surrogates that were replaced before, as msgspec refuses
    them."""
    try:
        return decode(value), None
    except DECODE_ERRORS as exc:
        hidden = substitute_surrogates(bytes(value))
        if hidden is None:
            raise ValueError(AMBIGUOUS_SURROGATES) from None
        if hidden.block is None:
            raise ValueError(str(exc)) from None
    try:
        return decode(hidden.text), hidden
    except DECODE_ERRORS as exc:
        raise ValueError(str(exc)) from None


def members_or_empty(value: Payload) -> dict[str, bytes]:
    """The members of a JSON object as `object_members` returns them; empty for any other value.

    Raises `ValueError` for an object that is nested too deeply.
    """
    text = bytes(value)
    return object_members(text) if text.lstrip().startswith(b"{") else {}


def decoded_members(value: Payload | None) -> dict[str, Any]:
    """The members of a JSON object as Python values; none of any other value."""
    try:
        decoded = decode_value(b"{}" if value is None else value)
    except DECODE_ERRORS:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def join_members(members: Mapping[str, Payload]) -> bytes:
    """The JSON object with these members, each value raw JSON."""
    pairs = (b"%b:%b" % (_encode_name(name), bytes(item)) for name, item in members.items())
    return b"{%b}" % b",".join(pairs)


def member_at(value: Payload, *path: str) -> bytes | None:
    """The raw JSON of the member at this path of names; `None` without it."""
    try:
        for name in path:
            value = object_members(value)[name]
    except (ValueError, KeyError):
        return None
    return bytes(value)


def with_member(value: Payload, path: Sequence[str], item: bytes) -> bytes:
    """A JSON object with this raw JSON as its member at a path of names.

    What the path lacks, or has in place of an object, becomes an object; the values of all other
    members keep their bytes. Raises `ValueError` if the value is no object, or is nested too
    deeply.
    """
    members = object_members(value)
    name, *rest = path
    if rest:
        inner = members.get(name, b"")
        item = with_member(inner if inner.startswith(b"{") else b"{}", rest, item)
    if name not in members:  # white space stays, too
        head = bytes(value).rstrip()[:-1].rstrip()
        return b"%b%b%b:%b}" % (head, b"," if members else b"", _encode_name(name), item)
    members[name] = item
    return join_members(members)


def _encode_name(name: str) -> bytes:
    try:
        return msgspec.json.encode(name)
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(name).encode()
