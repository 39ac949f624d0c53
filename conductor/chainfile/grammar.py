"""Read chain files as their keys are declared in `model`: the converter, and the conflicts of keys.

`values` checks single values, `keys` reads a mapping as one of the classes, `loader` loads
nested chains, `build` derives names. docs/development/changes.md lists what a new key needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from conductor.chainfile.converter import Converter, Hook, is_struct, make_converter
from conductor.chainfile.diagnostics import (
    InvalidValue,
    ValueIssue,
    closest_match,
    collect,
    expected,
)
from conductor.chainfile.keys import (
    COMPONENT_KINDS,
    declaration,
    key_names,
    read_struct,
    struct_hook,
)
from conductor.chainfile.model import AgentItem, ComponentItem, FileItem, RestartBudget
from conductor.chainfile.values import registry_name, seconds

__all__ = ["file_converter"]

_RESTARTS = r"([0-9]{1,6}) in (.+)"
_QUOTED_KINDS = tuple(f"`{kind}`" for kind in COMPONENT_KINDS)
_KEY_HINTS = {
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
_SSH_ENVIRONMENT_HELP: Final = (
    "the program gets the environment of the other machine, and of `env` what its sshd accepts"
)
_NESTED_HELP: Final = "a nested chain takes its settings from its own file"


def file_converter(directory: str) -> Converter:
    """A converter for `FileItem`. Files and components are read as mappings of their values by
    field: `build` makes instances of them."""
    converter = make_converter(directory)
    converter.hooks[RestartBudget] = _restart_budget
    converter.rules[:0] = [  # make only the hooks that the file needs
        (lambda cls: cls in (ComponentItem, AgentItem), lambda cls: _item_hook(cls, converter)),
        (
            lambda cls: cls is FileItem,
            lambda cls: lambda data: read_struct(data, FileItem, converter),
        ),
        (is_struct, lambda cls: struct_hook(cls, converter)),
    ]
    return converter


def _restart_budget(value: Any) -> RestartBudget:
    found = re.fullmatch(_RESTARTS, value) if isinstance(value, str) else None
    if not found:
        raise expected("a budget such as `3 in 60s`")
    try:
        within = seconds(found[2])
    except ValueError:
        within = 0.0
    if within <= 0:
        raise expected("a budget such as `3 in 60s`")
    return RestartBudget(int(found[1]), within)


def _item_hook(cls: type[ComponentItem], converter: Converter) -> Hook:
    def hook(data: Any) -> dict[str, Any]:
        if isinstance(data, str) and cls is AgentItem:
            registry_name(data)
            data = {"registry": data}
        if not isinstance(data, Mapping):
            raise expected("a component", lambda written: "write `use: …` or `run: […]`")
        found = _key_conflicts(data, cls)
        values: dict[str, Any] = collect(found, (), read_struct, data, cls, converter, _KEY_HINTS)
        if found:
            raise InvalidValue(found)
        return values

    return hook


def _key_conflicts(data: Mapping[str, Any], cls: type[ComponentItem]) -> list[ValueIssue]:
    """The issues of the keys of a component, as written, before their values are read."""
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
        meant = [
            _KEY_HINTS.get(key) or f"`{closest_match(key, key_names(AgentItem))}`" for key in data
        ]
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
        found += _inapplicable_keys(kinds[0], data)
        found += _tls_without_encryption(data)
    if kinds == ["use"] and data.get("isolate") not in ("true", "yes", "on"):
        help = "add `isolate: true`, which gives it a process of its own"
        message = "a plugin in this process cannot be restarted"
        found += [
            ValueIssue(message, help, path=(key,))
            for key in ("on_failure", "on_cancel_timeout")
            if data.get(key) == "restart"
        ]
    if data.get("on_failure") == "bypass" and data.get("required") in ("true", "yes", "on"):
        note = (("required",), "the chain must not run without this component")
        found.append(
            ValueIssue("a required component is never bypassed", path=("on_failure",), note=note)
        )
    if cls is AgentItem and data.get("when") is not None:
        message = "an agent has no `when`: a chain cannot do without it"
        found.append(ValueIssue(message, path=("when",)))
    sandbox = data.get("sandbox")
    mapped = isinstance(sandbox, Mapping) and isinstance(sandbox.get("workspaces"), Mapping)
    if mapped and cls is not AgentItem:
        message, path = (
            "only an agent can see a workspace at another path",
            ("sandbox", "workspaces"),
        )
        found.append(ValueIssue(message, "write a list of paths", path=path))
    return found


def _inapplicable_keys(kind: str, data: Mapping[str, Any]) -> list[ValueIssue]:
    if kind == "run" and "ssh" in data:
        kind = "ssh"
    help = {"ssh": _SSH_ENVIRONMENT_HELP, "chain": _NESTED_HELP}.get(kind)
    return [
        ValueIssue(
            f"`{key}` has no meaning beside `{kind}`",
            help,
            path=(key,),
            at_key=True,
            note=((kind,), "the component is given here"),
        )
        for key in data
        if key in key_names(AgentItem) and kind not in declaration(AgentItem, key).kinds
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
