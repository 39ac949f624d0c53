"""Validators of single values in chain files: names, commands, URLs, paths, headers, durations.

Each is called with a value that is given, and raises `InvalidValue` for one that must be written
differently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conductor.chainfile.value_errors import InvalidValue, ValueIssue, collect, expected, invalid

__all__ = [
    "argv",
    "component_name",
    "environment_names",
    "every",
    "host_name",
    "http_headers",
    "nonempty_path",
    "not_negative",
    "plugin_name",
    "positive",
    "registry_name",
    "registry_source",
    "url",
    "workspace_paths",
]

_REGISTRY_NAME = r"[a-z][a-z0-9-]*"
_PATH_AND_CLASS = r".+\.py:[^\W\d]\w*"
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HEADER_VALUE = r"[\t\x20-\x7e]*"
_RESERVED_HEADERS = {
    *("host", "connection", "upgrade", "content-length", "content-type", "transfer-encoding"),
    *("accept", "te", "trailer", "acp-connection-id", "acp-session-id"),
}


def every(validate: Callable[[Any], None]) -> Callable[[Any], None]:
    """A validator of lists and mappings, by one of their values."""

    def validate_all(values: Sequence[Any] | Mapping[str, Any]) -> None:
        found: list[ValueIssue] = []
        items = values.items() if isinstance(values, Mapping) else enumerate(values)
        for key, value in items:
            collect(found, (key,), validate, value)
        if found:
            raise InvalidValue(found)

    return validate_all


def positive(value: float) -> None:
    if value <= 0:
        raise invalid("must be more than zero")


def not_negative(value: int) -> None:
    if value < 0:
        raise invalid("must not be negative")


def component_name(value: str) -> None:
    if not value.strip() or "/" in value or not value.isprintable():
        raise expected("a name without `/`")


def argv(value: tuple[str, ...]) -> None:
    if value == ():
        raise invalid("the command is empty")
    if not value[0]:
        raise InvalidValue([ValueIssue("the command is empty", path=(0,))])


def plugin_name(value: str) -> None:
    looks_like_a_path = "/" in value or ":" in value or value.endswith(".py")
    if looks_like_a_path and not re.fullmatch(_PATH_AND_CLASS, value):
        raise expected("a name or `path.py:Class`", _class_of_the_file)
    if not value.strip():
        raise expected("a name or `path.py:Class`", "`acp-conductor components` lists the names")


def _class_of_the_file(written: str) -> str:
    path = written if written.endswith(".py") else "./file.py"
    return f"name the class of the file: `{path}:Class`"


def registry_name(value: str) -> None:
    if not re.fullmatch(_REGISTRY_NAME, value):
        help = "`acp-conductor registry list` lists the names; a command is written `run: […]`"
        raise expected("a name of the registry such as `claude-acp`", help)


def registry_source(value: str) -> None:
    if value and not value.startswith(("http://", "ftp://", "file://")):
        return
    if value.startswith("http://"):
        from urllib.parse import urlsplit

        if urlsplit(value).hostname in ("localhost", "127.0.0.1", "::1"):
            return
    raise expected("a file, or a URL that begins with `https://`")


def url(value: str) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("ws", "wss", "http", "https") and parts.port != 0
        usable = usable and bool(parts.hostname) and not parts.fragment
    except ValueError:
        usable = False
    if not usable or not value.isprintable() or " " in value:
        raise expected("a URL such as `wss://proxy.example.org/acp`")


def nonempty_path(value: str) -> None:
    if not value:
        raise invalid("the path is empty")


def environment_names(value: Mapping[str, str | None]) -> None:
    found = [
        ValueIssue(
            f"`{name}` cannot be the name of an environment variable", path=(name,), at_key=True
        )
        for name in value
        if not name or "=" in name
    ]
    if found:
        raise InvalidValue(found)


def host_name(value: str) -> None:
    if not value or value.startswith("-") or not value.isprintable() or " " in value:
        raise expected("a host such as `user@host`", "as the program `ssh` understands it")


def http_headers(value: Mapping[str, str]) -> None:
    found = []
    for name, text in value.items():
        if not re.fullmatch(_HEADER_NAME, name):
            message = f"`{name}` cannot be the name of a header"
            found.append(ValueIssue(message, path=(name,), at_key=True))
        elif name.lower() in _RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            message = f"the header `{name}` belongs to the connection and cannot be given"
            found.append(ValueIssue(message, path=(name,), at_key=True))
        elif not re.fullmatch(_HEADER_VALUE, text):
            message = "the value of a header is one line of ASCII"
            found.append(ValueIssue(message, path=(name,)))
    if found:
        raise InvalidValue(found)


def workspace_paths(value: list[str] | dict[str, str]) -> None:
    if not isinstance(value, dict):
        every(nonempty_path)(value)
        return
    found = []
    for outside, inside in value.items():
        if not outside:
            found.append(ValueIssue("the path is empty", path=(outside,), at_key=True))
        if not inside.startswith("/") or os.path.normpath(inside) == "/":
            message = "expected an absolute path such as `/workspace`"
            found.append(ValueIssue(message, path=(outside,), quote=True))
    if found:
        raise InvalidValue(found)
