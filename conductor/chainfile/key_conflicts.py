"""Keys of one component that are missing or exclude each other.

Input: the mapping as written, before its values are read. Output: the issues.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.value_errors import ValueIssue

__all__ = ["COMPONENT_KINDS", "KEY_HINTS", "key_conflicts"]

COMPONENT_KINDS = ("run", "use", "registry", "connect", "unix", "chain")
_QUOTED_KINDS = tuple(f"`{kind}`" for kind in COMPONENT_KINDS)

KEY_HINTS = {
    **dict.fromkeys(("command", "cmd", "args", "argv", "exec"), "did you mean `run`?"),
    **dict.fromkeys(("url", "uri"), "did you mean `connect`?"),
    **dict.fromkeys(("plugin", "class", "proxy"), "did you mean `use`?"),
    **dict.fromkeys(("options", "config", "settings"), "did you mean `with`?"),
    "environment": "did you mean `env`?",
    **dict.fromkeys(("bwrap", "bubblewrap", "container"), "did you mean `sandbox`?"),
    **dict.fromkeys(("npx", "uvx", "package"), "did you mean `run`, or `registry`?"),
    **dict.fromkeys(("socket", "uds"), "did you mean `unix`?"),
    **dict.fromkeys(("host", "remote"), "did you mean `ssh`, or `connect`?"),
}
# Keys that do not apply to a kind of component.
_STORE_KEYS = {"install_scripts"}
_PROGRAM_KEYS = {"with", "isolate", "env", "inherit_env", "cwd", "ssh", "sandbox"} | _STORE_KEYS
_CONNECTION_KEYS = {"headers", "tls", "ping_timeout"}
_INAPPLICABLE_KEYS = {
    "run": {"with", "isolate"} | _CONNECTION_KEYS | _STORE_KEYS,
    "use": {"ssh", "sandbox"} | _CONNECTION_KEYS | _STORE_KEYS,
    "registry": {"with", "isolate", "ssh"} | _CONNECTION_KEYS,
    "connect": _PROGRAM_KEYS,
    "unix": _PROGRAM_KEYS | _CONNECTION_KEYS,
}
_INAPPLICABLE_WITH_SSH = {
    "with",
    "isolate",
    "inherit_env",
    "headers",
    "tls",
    "sandbox",
} | _STORE_KEYS
_SSH_ENVIRONMENT_HELP = (
    "the program gets the environment of the other machine, and of `env` what its sshd accepts"
)
_CHAIN_KEYS = {"name", "chain", "when"}


def key_conflicts(data: Mapping[str, Any], keys: Set[str]) -> list[ValueIssue]:
    """The issues of a component; `keys` are all that a component has."""
    kinds = [key for key in data if key in COMPONENT_KINDS]
    found = [
        ValueIssue(
            f"`{kinds[0]}` and `{other}` exclude each other",
            path=(other,),
            at_key=True,
            note=((kinds[0],), "the component is given here already"),
        )
        for other in kinds[1:]
    ]
    if not kinds:
        # A misspelt kind is reported as an unknown key; do not report it twice.
        meant = [KEY_HINTS.get(key) or f"`{closest_match(key, keys)}`" for key in data]
        if "ssh" in data:
            help = "add the command: `run: […]`"
            found.append(
                ValueIssue("`ssh` says where, not what to run", help, path=("ssh",), at_key=True)
            )
        elif not any(word in hint for hint in meant for word in _QUOTED_KINDS):
            *most, last = _QUOTED_KINDS
            found.append(ValueIssue(f"a component needs one of {', '.join(most)} and {last}"))
    found += [
        ValueIssue("expected a value", path=(kind,), quote=True)
        for kind in kinds
        if data[kind] is None
    ]
    if len(kinds) == 1:
        found += _inapplicable_keys(kinds[0], data, keys)
        found += _tls_without_encryption(data)
    if (
        data.get("on_cancel_timeout") == "restart"
        and kinds == ["use"]
        and data.get("isolate") not in ("true", "yes", "on")
        and data.get("on_failure") != "restart"
    ):
        help = "add `isolate: true` or `on_failure: restart`"
        message = "a plugin in this process cannot be restarted by itself"
        found.append(ValueIssue(message, help, path=("on_cancel_timeout",)))
    if data.get("on_failure") == "bypass" and data.get("required") in ("true", "yes", "on"):
        note = (("required",), "the chain must not run without this component")
        found.append(
            ValueIssue("a required component is never bypassed", path=("on_failure",), note=note)
        )
    return found


def _inapplicable_keys(kind: str, data: Mapping[str, Any], keys: Set[str]) -> list[ValueIssue]:
    meaningless: Set[str]
    if kind == "run" and "ssh" in data:
        kind, meaningless, help = "ssh", _INAPPLICABLE_WITH_SSH, _SSH_ENVIRONMENT_HELP
    elif kind == "chain":
        meaningless = keys - _CHAIN_KEYS
        help = "a nested chain takes its settings from its own file"
    else:
        meaningless, help = _INAPPLICABLE_KEYS[kind], None
    return [
        ValueIssue(
            f"`{key}` has no meaning beside `{kind}`",
            help,
            path=(key,),
            at_key=True,
            note=((kind,), "the component is given here"),
        )
        for key in data
        if key in meaningless
    ]


def _tls_without_encryption(data: Mapping[str, Any]) -> list[ValueIssue]:
    url = data.get("connect")
    scheme = url.partition("://")[0] if isinstance(url, str) else None
    if "tls" not in data or scheme not in ("ws", "http"):
        return []
    note = (("connect",), "this connection is not encrypted")
    message = f"`tls` has no meaning for `{scheme}://`"
    help = f"write `{scheme}s://…`"
    return [ValueIssue(message, help, path=("tls",), at_key=True, note=note)]
