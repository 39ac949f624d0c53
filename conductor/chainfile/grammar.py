"""What may be written in a chain file: the keys, their types and defaults, and which go together.

The classes are the file as it is written, before names are derived, paths made absolute and
nested chains loaded (`loader` does that). An attribute per key; `with` is the one that Python
cannot spell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
import cattrs

from conductor.chainfile.classes import class_hook, key_of
from conductor.chainfile.mistakes import Mistake, Mistakes, collect, expected, mistake
from conductor.chainfile.model import Dialect, Limits, McpBridge, OnFailure, OnStall, Restarts
from conductor.chainfile.problems import closest
from conductor.chainfile.structure import converter
from conductor.chainfile.units import Argv, Bytes, Seconds, seconds

__all__ = ["KINDS", "AgentItem", "File", "Item", "file_converter"]

KINDS = ("run", "use", "connect", "chain")
_QUOTED_KINDS = tuple(f"`{kind}`" for kind in KINDS)

_LATER = "this key is kept for a later version"
_HINTS = {
    **dict.fromkeys(("ssh", "unix", "headers", "tls"), _LATER),
    **dict.fromkeys(("command", "cmd", "args", "argv", "exec"), "did you mean `run`?"),
    **dict.fromkeys(("url", "uri"), "did you mean `connect`?"),
    **dict.fromkeys(("plugin", "class", "proxy"), "did you mean `use`?"),
    **dict.fromkeys(("options", "config", "settings"), "did you mean `with`?"),
    "environment": "did you mean `env`?",
}
# Keys that say nothing about a component of this kind.
_MEANINGLESS = {
    "run": {"with", "isolate"},
    "use": set[str](),
    "connect": {"with", "isolate", "env", "inherit_env", "cwd"},
}
_CHAIN_KEYS = {"name", "chain"}
_PATH_AND_CLASS = re.compile(r".+\.py:[^\W\d]\w*")
_RESTARTS = re.compile(r"([0-9]{1,6}) in (.+)")


def _positive(_: Any, __: Any, value: float | int | Mapping[str, float] | None) -> None:
    if isinstance(value, Mapping):
        found: list[Mistake] = []
        for key, each in value.items():
            collect(found, (key,), _positive, None, None, each)
        if found:
            raise Mistakes(found)
    elif value is not None and value <= 0:
        raise mistake("must be more than zero")


def _name(_: Any, __: Any, value: str | None) -> None:
    if value is not None and (not value.strip() or "/" in value or not value.isprintable()):
        raise expected("a name without `/`")


def _argv(_: Any, __: Any, value: tuple[str, ...] | None) -> None:
    if value == ():
        raise mistake("the command is empty")
    if value and not value[0]:
        raise Mistakes([Mistake("the command is empty", path=(0,))])


def _used(_: Any, __: Any, value: str | None) -> None:
    if value is None:
        return
    looks_like_a_path = "/" in value or ":" in value or value.endswith(".py")
    if looks_like_a_path and not _PATH_AND_CLASS.fullmatch(value):
        raise expected("a name or `path.py:Class`", "name the class of the file: `./file.py:Class`")
    if not value.strip():
        raise expected("a name or `path.py:Class`", "`acp-conductor components` lists the names")


def _url(_: Any, __: Any, value: str | None) -> None:
    if value is None:
        return
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("ws", "wss", "http", "https") and parts.port != 0
        usable = usable and bool(parts.hostname) and not parts.fragment
    except ValueError:
        usable = False
    if not usable or not value.isprintable() or " " in value:
        raise expected("a URL such as `wss://proxy.example.org/acp`")


def _written(_: Any, __: Any, value: str | None) -> None:
    if value is not None and not value:
        raise mistake("the path is empty")


def _environment(_: Any, __: Any, value: Mapping[str, str]) -> None:
    found = [
        Mistake(
            f"`{name}` cannot be the name of an environment variable", path=(name,), at_key=True
        )
        for name in value
        if not name or "=" in name
    ]
    if found:
        raise Mistakes(found)


@attrs.frozen(kw_only=True)
class Item:
    """A component as it is written."""

    name: str | None = attrs.field(default=None, validator=_name)
    run: Argv | None = attrs.field(default=None, validator=_argv)
    use: str | None = attrs.field(default=None, validator=_used)
    connect: str | None = attrs.field(default=None, validator=_url)
    chain: str | None = attrs.field(default=None, validator=_written)
    options: dict[str, Any] = attrs.field(factory=dict, alias="with_")
    env: dict[str, str] = attrs.field(factory=dict, validator=_environment)
    inherit_env: bool = True
    cwd: str | None = attrs.field(default=None, validator=_written)
    isolate: bool = False
    dialect: Dialect | None = None
    start_timeout: Seconds = attrs.field(default=30.0, validator=_positive)
    stop_timeout: Seconds = 5.0
    request_timeout: dict[str, Seconds] = attrs.field(factory=dict, validator=_positive)
    stall_timeout: Seconds | None = attrs.field(default=None, validator=_positive)
    on_stall: OnStall = "report"
    on_failure: OnFailure | None = None
    restarts: Restarts | None = None
    required: bool = False


_KEYS = {key_of(field) for field in attrs.fields(Item)}


@attrs.frozen(kw_only=True)
class AgentItem(Item):
    """The agent as it is written: nothing is behind it that could take its place."""

    on_failure: Literal["restart", "end_chain"] | None = None


_LIMITS = Limits()


@attrs.frozen(kw_only=True)
class Bounds:
    """`limits:` as it is written."""

    max_message_bytes: Bytes = attrs.field(default=_LIMITS.max_message_bytes, validator=_positive)
    max_open_requests: int = attrs.field(default=_LIMITS.max_open_requests, validator=_positive)
    max_batch: int = attrs.field(default=_LIMITS.max_batch, validator=_positive)
    max_buffered_bytes: Bytes = attrs.field(default=_LIMITS.max_buffered_bytes, validator=_positive)


@attrs.frozen(kw_only=True)
class File:
    """A chain file as it is written."""

    version: Literal[1] = 1
    name: str | None = attrs.field(default=None, validator=_name)
    proxies: tuple[Item, ...] = ()
    agent: AgentItem | None = None
    mcp_bridge: McpBridge = "auto"
    limits: Bounds = attrs.field(factory=Bounds)


def file_converter(directory: str) -> cattrs.Converter:
    """A converter for `File`."""
    made = converter(directory, "key")
    made.register_structure_hook(Restarts, _restarts)
    for cls in (Item, AgentItem):
        made.register_structure_hook(cls, _item_hook(cls, made))
    return made


def _restarts(value: Any, _: Any) -> Restarts:
    found = _RESTARTS.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise expected("a budget such as `3 in 60s`")
    try:
        within = seconds(found[2])
    except ValueError:
        within = 0.0
    if within <= 0:
        raise expected("a budget such as `3 in 60s`")
    return Restarts(int(found[1]), within)


def _item_hook(cls: type[Item], made: cattrs.Converter) -> Callable[[Any, Any], Item]:
    read = class_hook(cls, made, "key", _HINTS)

    def hook(data: Any, _: Any) -> Item:
        if not isinstance(data, Mapping):
            raise expected("a component", lambda written: "write `use: …` or `run: […]`")
        found = _combination(data)
        item: Item = collect(found, (), read, data, cls)
        if found:
            raise Mistakes(found)
        return item

    return hook


def _combination(data: Mapping[str, Any]) -> list[Mistake]:
    """Which of the keys of a component do not go together."""
    kinds = [key for key in data if key in KINDS]
    found = [
        Mistake(
            f"`{kinds[0]}` and `{other}` exclude each other",
            path=(other,),
            at_key=True,
            note=((kinds[0],), "the component is given here already"),
        )
        for other in kinds[1:]
    ]
    if not kinds:
        # A misspelt kind is an unknown key, about which enough is said.
        meant = [_HINTS.get(key) or f"`{closest(key, _KEYS)}`" for key in data]
        if not any(word in hint for hint in meant for word in (_LATER, *_QUOTED_KINDS)):
            found.append(Mistake("a component needs one of `run`, `use`, `connect` and `chain`"))
    found += [
        Mistake("expected a value", path=(kind,), quote=True)
        for kind in kinds
        if data[kind] is None
    ]
    if len(kinds) == 1:
        found += _without_meaning(kinds[0], data)
    if data.get("on_failure") == "bypass" and data.get("required") in ("true", "yes", "on"):
        note = (("required",), "the chain must not run without this component")
        found.append(
            Mistake("a required component is never bypassed", path=("on_failure",), note=note)
        )
    return found


def _without_meaning(kind: str, data: Mapping[str, Any]) -> list[Mistake]:
    meaningless = _KEYS - _CHAIN_KEYS if kind == "chain" else _MEANINGLESS[kind]
    help = "a nested chain takes its settings from its own file" if kind == "chain" else None
    return [
        Mistake(
            f"`{key}` has no meaning beside `{kind}`",
            help,
            path=(key,),
            at_key=True,
            note=((kind,), "the component is given here"),
        )
        for key in data
        if key in meaningless
    ]
