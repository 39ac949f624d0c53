"""Login methods of an agent (`authMethods`), for the client of its chain. In: raw JSON.

For a method of type `terminal`, the client runs its agent's command again in a terminal, with the
method's `args` and `env` added. Its agent's command is this program's, so the `args` are rewritten:
they say that the agent of the chain is to run alone, with the agent's `args` (`login_words`). The
values of `env` stay where they are, and the rewritten `args` only name them. A method that cannot
be reached this way is left out.

A client on another machine would run something else, and what an agent that is isolated from this
machine (in a sandbox, or behind `ssh`) names would run outside of its sandbox. Such clients get no
commands, arguments and variables of this machine: methods are read as frames are, by decoded names,
and written anew from the members that are listed here. Methods that cannot be read are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from conductor.chain.login_words import TerminalLogin, login_words
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
from conductor.routing.component import Component
from conductor.routing.stage import EVERY, ForwardResponse, Stage

__all__ = [
    "WithheldLogin",
    "error_without_commands",
    "for_client",
    "result_without_commands",
    "variables",
]

_WHOLE_COMMAND: Final = b'"terminal-auth"'


def for_client(
    result: bytes,
    login: TerminalLogin,
    components: Sequence[Component],
    command: Sequence[str] = (),
) -> bytes:
    """The raw result with the methods changed; everything else keeps its bytes. `command` is the
    command line that is repeated, by default that of this program."""
    command = command or [sys.executable, *sys.orig_argv[1:]]
    is_isolated = _is_isolated(components)
    if login == "kept" or (login == "appended" and not is_isolated):
        return result
    if login == "redirected" and is_isolated:
        return result_without_commands(result, partial(_of_isolated, command=command))
    if login != "redirected" or not _is_program(components):
        return result_without_commands(result)
    if b'"terminal"' not in result:
        return result
    try:
        members = object_members(result)
        methods = list_items(members.get("authMethods", b"[]"))
        changed = [_changed(each, command) for each in methods]
    except ValueError:
        return result
    if changed == methods:
        return result
    members["authMethods"] = b"[" + b",".join(changed) + b"]"
    return join_members(members)


def _changed(method: bytes, command: Sequence[str]) -> bytes:
    """The method for a client on this machine. Raises `ValueError`."""
    try:
        members = object_members(method)
    except ValueError:
        return method
    if members.get("type") != b'"terminal"':
        return method
    try:
        args = decode_value(members.get("args", b"[]"))
        env = decode_value(members.get("env", b"{}"))
    except DECODE_ERRORS:
        return method
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        return method  # invalid: the client refuses it
    words = login_words(args, variables(env))
    members["args"] = msgspec.json.encode(words)
    if _WHOLE_COMMAND in members.get("_meta", b""):
        members["_meta"] = _with_command(members["_meta"], [*command, *words], variables(env))
    return join_members(members)


def _of_isolated(method: bytes, command: Sequence[str]) -> bytes:
    """The method of an agent in a sandbox or on another machine; empty if it is left out."""
    try:
        members = object_members(method)
        if variables(decode_value(members.get("env", b"{}"))):
            return b""
        kept = members_without_commands(members, (None, "agent", "env_var", "terminal"))
        if kept.get("type") == b'"terminal"':
            args = decode_value(members.get("args", b"[]"), type=list[str])
            words = login_words(args, ())
            kept["args"] = msgspec.json.encode(words)
            if _WHOLE_COMMAND in members.get("_meta", b""):
                terminal_auth = {"command": command[0], "args": [*command[1:], *words]}
                kept["_meta"] = msgspec.json.encode({"terminal-auth": terminal_auth})
    except (ValueError, *DECODE_ERRORS):
        return b""
    return join_members(kept)


def _with_command(meta: bytes, whole: Sequence[str], env: Mapping[str, str]) -> bytes:
    """The raw `_meta` with these words and variables as its whole command."""
    members = object_members(meta)
    terminal_auth = decode_value(members.pop("terminal-auth", b"{}"))
    if isinstance(terminal_auth, dict):
        first, *rest = whole
        changed = {**terminal_auth, "command": first, "args": rest, **({"env": env} if env else {})}
        members["terminal-auth"] = msgspec.json.encode(changed)
    return join_members(members)


def _is_isolated(components: Sequence[Component]) -> bool:
    """Whether the agent has a sandbox, or runs on another machine by `ssh`."""
    spec = getattr(components[-1], "spec", None) if components else None
    return spec is not None and (spec.sandbox is not None or spec.ssh is not None)


def _is_program(components: Sequence[Component]) -> bool:
    """Whether the agent is a program that this one can start: also with `ssh`, or in a sandbox."""
    spec = getattr(components[-1], "spec", None) if components else None
    return spec is not None and spec.run is not None


def variables(env: Any) -> dict[str, str]:
    """The `env` of a method: an object in version 1, a list of objects in version 2."""
    if isinstance(env, dict):
        return {name: value for name, value in env.items() if isinstance(value, str)}
    pairs = [each for each in env if isinstance(each, dict)] if isinstance(env, list) else []
    named = [(each.get("name"), each.get("value")) for each in pairs]
    return {
        name: value for name, value in named if isinstance(name, str) and isinstance(value, str)
    }


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
    received: frozenset[str] = EVERY

    def send_response(
        self,
        forward: ForwardResponse,
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
