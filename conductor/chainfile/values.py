"""Single values in chain files: their notation by target type, and validators.

A reader turns text into a value, or raises `ValueError`; its message never quotes the text, which
may be a secret. A validator is called with a value that is given, and raises `InvalidValue` for one
that must be written differently.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, TypeAlias

from conductor.chainfile.diagnostics import InvalidValue, ValueIssue, collect, expected, invalid

__all__ = [
    "Argv",
    "Bytes",
    "Seconds",
    "Unit",
    "argv",
    "boolean",
    "byte_size",
    "component_name",
    "environment_names",
    "every",
    "host_name",
    "http_headers",
    "nonempty_path",
    "not_negative",
    "number",
    "plugin_name",
    "positive",
    "registry_name",
    "registry_source",
    "seconds",
    "url",
    "whole_number",
    "workspace_paths",
]


class Unit(Enum):
    """Notation of a field in chain files, for `Annotated` types."""

    WORDS = "words"
    SECONDS = "seconds"
    BYTES = "bytes"


Argv: TypeAlias = Annotated[tuple[str, ...], Unit.WORDS]
"""A program and its arguments; a single word is a program without arguments."""
Seconds: TypeAlias = Annotated[float, Unit.SECONDS]
"""A float that is written as a duration: `500ms`, `10s`, `2m`, `1h`."""

Bytes: TypeAlias = Annotated[int, Unit.BYTES]
"""An int that is written as a size: `65536`, `64KiB`, `10MB`."""

_DURATION = r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE = r"([0-9]+) ?([kKMGT]i?)?B?"
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_MAX_LENGTH = 100


def boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError("not a boolean")
    return value


def whole_number(text: str) -> int:
    """Python syntax; `012` is refused, because it is 10 in YAML 1.1 and 12 in YAML 1.2."""
    return int(_short(text), 0)


def number(text: str) -> float:
    value = float(_short(text))
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def seconds(text: str) -> float:
    found = re.fullmatch(_DURATION, _short(text))
    if not found:
        raise ValueError("not a duration")
    # Rounded, because 0.001 has no exact double: 2300 * 0.001 is not 2.3.
    return round(float(found[1]) * _SECONDS[found[2]], 9)


def byte_size(text: str) -> int:
    found = re.fullmatch(_SIZE, _short(text))
    if not found:
        raise ValueError("not a size")
    prefix = found[2] or ""
    base = 1024 if prefix.endswith("i") else 1000
    return int(found[1]) * int(base ** _POWERS.get(prefix[:1].upper(), 0))


def _short(text: str) -> str:
    """The text, or "" if it is too long or not ASCII (Python also reads other scripts' digits)."""
    return text if len(text) <= _MAX_LENGTH and text.isascii() else ""


# -- validators ------------------------------------------------------------------------------------

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
