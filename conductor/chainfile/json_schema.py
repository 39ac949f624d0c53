"""JSON Schema (2020-12) of chain files, for completion and checks in an editor.

Derived from the keys in `model` and, for `with:`, from the classes of installed components. Each
number and boolean may be written as `${VAR}`, so these types also accept text with `${`.
`errorMessage` and `enumDescriptions` are for the YAML language server. The schema describes keys
and types; `acp-conductor check` finds more mistakes, such as keys that exclude each other.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
import msgspec

from conductor.chainfile.converter import MAPPINGS, SEQUENCES, is_struct, plain_type
from conductor.chainfile.keys import COMPONENT_KINDS, types_as_written
from conductor.chainfile.model import AgentItem, ComponentItem, FileItem, RestartBudget
from conductor.chainfile.options import field_key, field_types
from conductor.chainfile.values import Argv, Bytes, Seconds

__all__ = ["attribute_docstrings", "chain_file_schema", "option_docstrings", "options_schema"]

JsonSchema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_INTERPOLATED: Final[JsonSchema] = {"type": "string", "pattern": r"\$\{"}
_TEXT: Final[JsonSchema] = {"type": ["string", "number", "boolean"]}
# In `anyOf`, although there is one: the language server inserts every key that has a type and a
# default of its own into a new mapping.
_DURATION: Final[JsonSchema] = {
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h)$|\$\{",
            "errorMessage": "expected a duration such as 30s or 500ms",
        }
    ]
}
_SIZE: Final[JsonSchema] = {
    "anyOf": [
        {
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": r"^[0-9]+ ?([kKMGT]i?)?B?$|\$\{",
            "errorMessage": "expected a size such as 65536 or 64KiB",
        }
    ]
}
_SCALARS: Final[dict[Any, JsonSchema]] = {
    str: _TEXT,
    bool: {"anyOf": [{"type": "boolean"}, _INTERPOLATED]},
    int: {"anyOf": [{"type": "integer"}, _INTERPOLATED]},
    float: {"anyOf": [{"type": "number"}, _INTERPOLATED]},
    timedelta: _DURATION,
    Seconds: _DURATION,
    Bytes: _SIZE,
    Argv: {
        "anyOf": [
            {"type": "array", "items": _TEXT, "minItems": 1},
            {"type": "string", "pattern": r"^\S+$"},
        ]
    },
    RestartBudget: {
        "type": "string",
        "pattern": r"^[0-9]{1,6} in .+",
        "errorMessage": "expected a budget such as 3 in 60s",
    },
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


_HEAD: Final = re.compile(r"^( *)Options:\n", re.MULTILINE)
_OPTION: Final = re.compile(r"( +)(\w+) {2,}(\S.*)")


def chain_file_schema(options: Mapping[str, JsonSchema]) -> JsonSchema:
    """The schema of a chain file; `options` are the schemas of `with:` by the name for `use:`."""
    definitions: dict[str, JsonSchema] = {}
    root = _object(FileItem, definitions)
    root["required"] = ["version"]
    del root["properties"]["version"]["default"]
    for cls in (ComponentItem, AgentItem):
        component = definitions[cls.__name__]
        component["properties"]["use"] |= _use(options)
        component["properties"]["with"]["type"] = "object"
        component["oneOf"] = [{"required": [kind]} for kind in COMPONENT_KINDS]
        component["allOf"] = [
            {
                "if": {"properties": {"use": {"const": name}}, "required": ["use"]},
                "then": _with(name, options[name]),
            }
            for name in sorted(options)
        ]
    agent = root["properties"]["agent"]
    root["properties"]["agent"] = {
        "anyOf": [{"type": "string", "pattern": r"^[a-z][a-z0-9-]*$|\$\{"}, agent],
        "description": agent.pop("description", ""),
    }
    for name in sorted(options):
        definitions[f"with {name}"] = options[name]
    return {
        "$schema": _DIALECT,
        "title": "Chain file of acp-conductor",
        **root,
        "$defs": definitions,
    }


def options_schema(cls: type) -> JsonSchema:
    """The schema of the options (`with:`) of a plugin class.

    Descriptions are those under `Options:` in the docstring of the class or of its module, and
    docstrings of attributes. Raises `TypeError` if an annotation cannot be resolved.
    """
    if not attrs.has(cls):
        return {"type": "object", "additionalProperties": False}
    return _object(cls, None, ())


def _use(options: Mapping[str, JsonSchema]) -> JsonSchema:
    """A name, or a class in a file. The language server shows `enumDescriptions`, each with its
    name."""
    names = sorted(options)
    named = {
        "enum": names,
        "enumDescriptions": [options[name].get("description", "") for name in names],
    }
    return {"anyOf": [named, {"type": "string", "pattern": r"\.py:[^\d\W]\w*$|\$\{"}]}


def _with(name: str, options: JsonSchema) -> JsonSchema:
    """The schema of `with:` for `use: NAME`."""
    then: JsonSchema = {"properties": {"with": {"$ref": f"#/$defs/with {name}"}}}
    return {**then, "required": ["with"]} if options.get("required") else then


def _object(
    cls: Any, definitions: dict[str, JsonSchema] | None, around: tuple[type, ...] = ()
) -> JsonSchema:
    """The schema of an attrs class, or of a class of keys. `definitions` gets the classes of
    its fields by name; without it they are written in line, but for those that contain this one
    (`around`)."""
    if cls in around:
        return {"type": "object"}
    texts = option_docstrings(cls) | attribute_docstrings(cls)
    properties: dict[str, JsonSchema] = {}
    required = []
    for name, key, hint, given in _fields(cls):
        schema = dict(_schema(hint, definitions, (*around, cls)))
        if text := texts.get(name) or texts.get(key):
            schema["description"] = text
        default = _default(given, plain_type(hint))
        if default is not None:
            schema["default"] = default
        if given is attrs.NOTHING:
            required.append(key)
        properties[key] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if cls.__doc__:
        schema["description"] = _one_paragraph(cls.__doc__)
    return schema


def _fields(cls: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Name, key, type and default of each field: `attrs.NOTHING` if it must be given."""
    if is_struct(cls):  # of `model`, where no key must be given
        types = types_as_written(cls)
        for field in msgspec.structs.fields(cls):
            yield field.name, field.encode_name, types[field.encode_name], field.default
    else:
        types = field_types(cls)
        for each in attrs.fields(cls):
            if each.init:
                yield each.name, field_key(each), types[field_key(each)], each.default


def _schema(
    hint: Any, definitions: dict[str, JsonSchema] | None, around: tuple[type, ...]
) -> JsonSchema:
    def inner(hint: Any) -> JsonSchema:
        return _schema(hint, definitions, around)

    hint = plain_type(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        members = [inner(arg) for arg in args]
        return {"anyOf": [each for one in members for each in one.get("anyOf", [one])]}
    if origin in SEQUENCES:
        return {"type": "array", "items": inner(args[0]) if args else {}}
    if origin in MAPPINGS:
        return {"type": "object", "additionalProperties": inner(args[1]) if args else True}
    if not isinstance(origin, type):
        return {}
    if issubclass(origin, Enum):
        return {"enum": [member.value for member in origin]}
    if issubclass(origin, PurePath | os.PathLike):
        return {"type": "string"}
    if not (attrs.has(origin) or is_struct(origin)):
        return {}
    if definitions is None:
        return _object(origin, None, around)
    if origin.__name__ not in definitions:
        definitions[origin.__name__] = {}  # a class may contain itself
        # In messages of the language server.
        title = re.sub("(Item|Start)$", "", origin.__name__).lower()
        definitions[origin.__name__] = {"title": title, **_object(origin, definitions)}
    return {"$ref": f"#/$defs/{origin.__name__}"}


def _default(default: Any, hint: Any) -> Any:
    """The default as one writes it; None if there is none, or if it needs no mention."""
    match default:
        case float() if hint == Seconds:
            return f"{default:g}s"
        case int() if hint == Bytes:
            return _size(default)
        case bool() | int() | float() | str():
            return default
        case timedelta():
            return f"{default.total_seconds():g}s"
        case _:
            return None


def _size(size: int) -> int | str:
    for power, prefix in enumerate(("Ki", "Mi", "Gi"), 1):
        number, rest = divmod(size, 1024**power)
        if not rest and 0 < number < 1024:
            return f"{number}{prefix}B"
    return size


def _one_paragraph(doc: str) -> str:
    return re.sub(r"\s+", " ", doc.strip().partition("\n\n")[0])


# -- docstrings ------------------------------------------------------------------------------------


def attribute_docstrings(cls: type) -> dict[str, str]:
    """The strings below the attributes of a class and its bases, each as one line.

    Empty where there is no source to read.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _own_docstrings(base)
    return found


@lru_cache(maxsize=64)  # many classes have the same bases, and `getsource` parses a whole module
def _own_docstrings(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return found
    body = getattr(tree, "body", [])
    for above, below in pairwise(body):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
            match below:
                case ast.Expr(ast.Constant(str(text))):
                    found[above.target.id] = " ".join(text.split())
    return found


def option_docstrings(cls: type) -> dict[str, str]:
    """Descriptions by option, from the list in the docstrings of the module and the class:

    Options:
        files    paths, relative to the session's directory;
                 more lines are indented deeper
    """
    module: Any = sys.modules.get(cls.__module__)
    # Other classes of the module have other options.
    docs = [getattr(module, "__doc__", None), cls.__doc__]
    found: dict[str, str] = {}
    for doc in docs:
        found |= _options(inspect.cleandoc(doc or ""))
    return found


def _options(doc: str) -> dict[str, str]:
    head = _HEAD.search(doc)
    if not head:
        return {}
    found: dict[str, str] = {}
    name, first = "", 0
    for line in doc[head.end() :].splitlines():
        depth = len(line) - len(line.lstrip())
        if not line.strip() or depth <= len(head[1]):
            break
        option = _OPTION.fullmatch(line)
        if option and (not name or len(option[1]) == first):
            first, name = len(option[1]), option[2]
            found[name] = option[3]
        elif option:  # a list within the text of an option
            found[name] += f"; `{option[2]}`: {option[3]}"
        elif name:
            found[name] += " " + line.strip()
    return found
