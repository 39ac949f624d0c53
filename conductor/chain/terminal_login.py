"""Authentication methods of type `terminal` in an `initialize` result, for the client of a chain.

For such a method, the client runs its agent's command again in a terminal, with the method's `args`
and `env` added. Its agent's command is this program's, so the `args` are rewritten: they say that
the agent of the chain is to run alone, with the agent's `args` (`login_words`). The
values of `env` stay where they are, and the rewritten `args` only name them. A method that cannot
be reached this way is left out: a client on another machine would run something else
(`withheld_login`). Of an agent in a sandbox, or on another machine, a client gets neither variables
nor other commands: they would act on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from conductor.chain.login_words import TerminalLogin, login_words
from conductor.json_values import decode_value
from conductor.jsonrpc.codec import DECODE_ERRORS
from conductor.jsonrpc.json_object import join_members, list_items, object_members
from conductor.routing.component import Component

__all__ = ["for_client", "variables"]

_WHOLE_COMMAND: Final = b'"terminal-auth"'


def for_client(
    result: bytes, login: TerminalLogin, components: Sequence[Component], command: Sequence[str]
) -> bytes:
    """The raw result with the methods changed; `command` is the command line of this program.
    Everything else keeps its bytes."""
    is_isolated = _is_isolated(components)
    if login == "kept" or (login == "appended" and not is_isolated):
        return result
    if login == "redirected" and is_isolated:
        from conductor.chain.withheld_login import result_without_commands

        return result_without_commands(result, partial(_of_isolated, command=command))
    if login != "redirected" or not _is_program(components):
        from conductor.chain.withheld_login import result_without_commands

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
    from conductor.chain.withheld_login import members_without_commands

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
