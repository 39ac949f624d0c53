"""Authentication methods without commands, arguments and variables of this machine.

So a remote client gets them, and the client of an agent that is isolated from this machine: what
the agent names would run outside of its sandbox. Methods are read as frames are, by decoded names,
and written anew from the members that are listed here. Methods that cannot be read are left out, as
are those of type `terminal`. In: raw JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import (
    join_members,
    list_items,
    members_or_empty,
    object_members,
)
from conductor.jsonrpc.messages import Payload, internal_error
from conductor.routing.stage import EVERY, SendResponse, Stage

__all__ = [
    "WithheldLogin",
    "error_without_commands",
    "members_without_commands",
    "result_without_commands",
]

_METHODS: Final = "authMethods"
_TEXTS: Final = ("id", "methodId", "type", "name", "description", "link", "varName")
_OF_ERROR: Final[tuple[str, ...]] = ("code", "message", "data")
_OF_VARIABLE: Final = ("name", "label", "secret", "optional")
_OF_META: Final[tuple[str, ...]] = ("api-key", "gateway")
"""Members of `_meta` by which a method announces that the client supplies a key or an address."""
_TYPES: Final = (None, "agent", "env_var")


class WithheldLogin(Stage):
    """Changes the errors that a client gets: their `data` may repeat the methods."""

    __slots__ = ()

    name = "withheld login"
    received = EVERY

    def send_response(
        self,
        forward: SendResponse,
        call: InFlightRequest,
        result: Payload | None,
        error: Payload | None,
    ) -> None:
        forward(call, result, None if error is None else error_without_commands(error))


def result_without_commands(result: bytes, change: Callable[[bytes], bytes] | None = None) -> bytes:
    """The raw `initialize` result; other members keep their bytes.

    `change` makes of a raw method what the client gets, empty if it is left out.
    """
    try:
        return _without_commands(result, change or _method)
    except ValueError:
        return b"{}"


def error_without_commands(error: Payload) -> bytes:
    """The raw error for a remote client: its `data` may repeat the methods."""
    try:
        found = object_members(error)
        members = {name: found[name] for name in _OF_ERROR if name in found}
        if (data := members.get("data", b"")).lstrip().startswith(b"{"):
            members["data"] = _without_commands(data, _method)
    except ValueError:
        return internal_error("The error cannot be read", None)
    return join_members(members)


def _without_commands(holder: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The object with the methods changed; some clients read names in any case. Raises
    `ValueError`."""
    members = object_members(holder)
    named = [name for name in members if name.casefold() == _METHODS.casefold()]
    if not named:
        return holder
    methods = members.get(_METHODS)
    for name in named:
        del members[name]
    if methods is not None:
        kept = [change(each) for each in _items(methods)]
        members[_METHODS] = b"[" + b",".join(each for each in kept if each) + b"]"
    return join_members(members)


def _method(method: bytes) -> bytes:
    """The method for the client; empty if it is left out."""
    try:
        return join_members(members_without_commands(object_members(method), _TYPES))
    except (ValueError, *DECODE_ERRORS):
        return b""


def members_without_commands(
    members: dict[str, bytes], types: tuple[str | None, ...]
) -> dict[str, bytes]:
    """The members of a method that a client may see. Raises `ValueError` for a method of another
    type, and `DECODE_ERRORS`."""
    if decode_value(members.get("type", b"null")) not in types:
        raise ValueError("a method of another type")
    kept = {name: members[name] for name in _TEXTS if _is_text(members.get(name, b""))}
    if "vars" in members:
        variables = [_scalars(each, _OF_VARIABLE) for each in _items(members["vars"])]
        kept["vars"] = b"[" + b",".join(map(join_members, variables)) + b"]"
    meta = members_or_empty(members.get("_meta", b""))
    told = {name: join_members(_scalars(meta[name])) for name in _OF_META if name in meta}
    return {**kept, "_meta": join_members(told)} if told else kept


def _items(value: bytes) -> list[bytes]:
    """The items of a list; none of anything else."""
    try:
        return list_items(value)
    except ValueError:
        return []


def _scalars(value: bytes, names: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The members with these names, or all, that are neither objects nor lists."""
    return {
        name: item
        for name, item in members_or_empty(value).items()
        if (not names or name in names) and item[:1] not in (b"{", b"[")
    }


def _is_text(value: bytes) -> bool:
    return value[:1] == b'"'
