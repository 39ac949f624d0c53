"""Convert between JSON and typed objects: `structure`, `unstructure`, `dumps`, and cattrs hooks.

The functions that read and write a class are derived from its fields (`base`) on first use. They
keep the JSON object, apply the leniency of the schema, and write a member anew only if its field
was modified: a scalar is unmodified if it is the same Python object, so that the usual case is one
comparison.

Types are checked; ranges and formats are not: the receiver decides about a negative line number.
Unknown enumeration values and unknown tags are valid, so leniency does not hide them.

`structure` takes ownership of a dict: the object refers to it and to its values.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextvars import ContextVar
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, overload

import msgspec

from conductor.schema._json import LiteralFloat, Raw, SchemaError, decode, escaped
from conductor.schema.base import (
    ABSENT,
    Leniency,
    Member,
    Object,
    alternatives,
    known_members,
    members_of,
    tags_of,
)

if TYPE_CHECKING:
    import cattrs

__all__ = [
    "SchemaError",
    "converter",
    "decode",
    "dumps",
    "is_schema_type",
    "misfit",
    "reader",
    "structure",
    "unstructure",
]

T = TypeVar("T", bound=Object)
Read: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any], Any]

_RAW = (bytes, memoryview, msgspec.Raw, bytearray)


@overload
def structure(raw: Raw | dict[str, Any], cls: type[T]) -> T: ...
@overload
def structure(raw: Raw | dict[str, Any], cls: Any) -> Any: ...
def structure(raw: Any, cls: Any) -> Any:
    """The typed object for a JSON object; `cls` is a class or a union of `v1` or `v2`."""
    if isinstance(raw, _RAW):
        raw = decode(raw)
    return reader(cls)(raw)


@functools.cache
def reader(cls: Any) -> Read:
    """The function that makes a typed object of a JSON object."""
    if cls is not Any and cls is not dict and not is_schema_type(cls):
        raise TypeError(f"{cls!r} is not one of the schema's types")
    return _reader(cls)


def is_schema_type(cls: Any) -> bool:
    """Whether it is a class of the schema, or a union of some."""
    return all(isinstance(each, type) and issubclass(each, Object) for each in alternatives(cls))


def unstructure(obj: Object | dict[str, Any]) -> dict[str, Any]:
    """The JSON object for a typed object, as a new dict; its values may be shared.

    A dict is returned unchanged. Encode the result with `dumps`: it may contain numbers that a
    plain encoder would spell differently.
    """
    written: dict[str, Any] = WRITERS[type(obj)](obj)
    return written


def dumps(obj: Any) -> bytes:
    """The JSON text of a typed object, or of any JSON value."""
    value = WRITERS[type(obj)](obj) if isinstance(obj, Object) else obj
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return escaped(value, _encode).encode()


def _encode_hook(value: Any) -> Any:
    if type(value) is LiteralFloat:
        return msgspec.Raw(value.text.encode())
    if isinstance(value, Object):  # inside a dict from proxy code
        return unstructure(value)
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


_encode = msgspec.json.Encoder(enc_hook=_encode_hook).encode


def misfit(raw: bytes, type_name: str, version: int) -> str | None:
    """The first part of raw JSON that does not fit a type of the schema: `sessions: expected array,
    got a string`. `None` if it fits.

    Typed objects hide invalid values where the schema says so. Here they are found: a handler may
    have failed because of them.
    """
    types = importlib.import_module(f"conductor.schema.v{version}")
    token = _is_strict.set(True)
    try:
        reader(getattr(types, type_name))(decode(raw))
    except ValueError as exc:
        return str(exc)
    finally:
        _is_strict.reset(token)
    return None


@functools.cache
def converter() -> cattrs.Converter:
    """A cattrs converter that knows the schema's types, also inside other attrs classes."""
    import cattrs  # takes 50 ms

    made = cattrs.Converter()
    made.register_structure_hook_func(is_schema_type, structure)
    made.register_unstructure_hook_func(is_schema_type, unstructure)
    return made


# --- values ---


class _Missing:
    """Placeholder for an absent member during reading."""


MISSING = _Missing()
_NOTHING: dict[str, Any] = {}
_is_strict = ContextVar("is_strict", default=False)
"""Whether an invalid value is an error even where the schema is lenient."""

_KINDS = {
    _Missing: "nothing", NoneType: "null", bool: "a boolean", int: "a number", float: "a number",
    LiteralFloat: "a number", str: "a string", list: "an array", dict: "an object",
}  # fmt: skip
_NAMES = {
    Any: "a value", NoneType: "null", bool: "boolean", int: "integer", float: "number",
    str: "string", list: "array", dict: "object",
}  # fmt: skip


def fail(value: Any, expected: Any) -> SchemaError:
    got = _KINDS.get(type(value), f"a Python {type(value).__name__}")
    return SchemaError(f"expected {_NAMES.get(expected, expected)}, got {got}")


class Items(list[Any]):
    """A list without its invalid items, and their positions.

    `rejoined` inserts each after the item that preceded it, or after the nearest earlier item that
    is still in the list.
    """

    __slots__ = ("skipped",)
    skipped: list[tuple[int, list[Any], Any]]  # position, the items before, the invalid value

    def rejoined(self, write: Write | None) -> list[Any]:
        kept: dict[int, list[Any]] = {}
        for _, before, invalid in self.skipped:
            at = next((i for item in reversed(before) if (i := _index(self, item)) >= 0), -1)
            kept.setdefault(at, []).append(invalid)
        out = list(kept.get(-1, ()))
        for i, item in enumerate(self):
            out.append(write(item) if write else item)
            out += kept.get(i, ())
        return out


def _index(items: list[Any], wanted: Any) -> int:
    return next((i for i, item in enumerate(items) if item is wanted), -1)


# --- reading ---


@functools.cache
def _reader(annotation: Any, *, skip_invalid: bool = False) -> Read:
    """The function that reads values of a type; it raises `SchemaError`."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if is_schema_type(annotation):
        classes = alternatives(annotation)
        return _union_reader(classes) if len(classes) > 1 else _compiled(annotation)
    choices = [each for each in alternatives(annotation) if get_origin(each) is not Literal]
    if len(choices) > 1:
        return _choice_reader(choices)
    if choices[0] is not annotation:  # an enumeration: unknown values are kept
        return _SCALARS[choices[0]]
    item = get_args(annotation)[-1]
    if get_origin(annotation) is list:
        return _list_reader(item, skip_invalid)
    return _SCALARS[dict] if item is Any else _map_reader(item)


def _exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise fail(value, kind)

    return read


def _read_int(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
        return int(value)
    raise fail(value, int)


def _read_float(value: Any) -> Any:
    if type(value) is float or type(value) is int or type(value) is LiteralFloat:
        return value
    raise fail(value, float)


def _read_any(value: Any) -> Any:
    if value is MISSING:
        raise fail(value, Any)
    return value


_SCALARS: dict[Any, Read] = {
    Any: _read_any, float: _read_float, int: _read_int,
    **{kind: _exactly(kind) for kind in (bool, dict, str, NoneType)},
}  # fmt: skip


def _list_reader(item: Any, skip_invalid: bool) -> Read:
    read, is_same = _reader(item), _writer(item) is None

    def read_list(value: Any) -> Any:
        if type(value) is not list:
            raise fail(value, list)
        try:
            items = [read(each) for each in value]
        except SchemaError:
            return read_items(value)
        return value if is_same else items  # the same list, so that edits need no comparison

    def read_items(values: list[Any]) -> Items:
        items = Items()
        items.skipped = []
        for i, value in enumerate(values):
            try:
                items.append(read(value))
            except SchemaError as error:
                if not skip_invalid or _is_strict.get():
                    raise error.under(i) from None
                items.skipped.append((i, list(items), value))
        return items

    return read_list


def _map_reader(item: Any) -> Read:
    read, is_same = _reader(item), _writer(item) is None

    def read_map(value: Any) -> Any:
        if type(value) is not dict:
            raise fail(value, dict)
        items = {}
        for key, each in value.items():
            try:
                items[key] = read(each)
            except SchemaError as error:
                raise error.under(key) from None
        return value if is_same else items

    return read_map


def _choice_reader(choices: list[Any]) -> Read:
    reads = [_reader(each) for each in choices]
    names = " or ".join(_NAMES[get_origin(each) or each] for each in choices)

    def read_choice(value: Any) -> Any:
        errors = []
        for read in reads:
            try:
                return read(value)
            except SchemaError as error:
                errors.append(error)
        furthest = max(errors, key=lambda error: error.path[:1])  # of lists
        raise furthest if furthest.path else fail(value, names)

    return read_choice


def _tag_of(classes: tuple[Any, ...]) -> str | None:
    """The tag that distinguishes the variants of a union."""
    for tag in {tag: None for cls in classes for tag in tags_of(cls)}:
        if len({tags_of(cls).get(tag) for cls in classes}) > 1:
            return tag
    return None


def _union_reader(classes: tuple[Any, ...]) -> Read:
    tag = _tag_of(classes)
    variants: dict[Any, Any] = {}  # a union, if another tag distinguishes them further
    untagged, other = [], None
    for cls in classes:
        value = tags_of(cls).get(tag or "")
        if value is not None:
            variants[value] = variants[value] | cls if value in variants else cls
        elif cls.__name__.startswith("Other"):
            other = cls
        else:
            untagged.append((cls, {m.wire for m in members_of(cls) if m.is_required}))

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise fail(value, dict)
        kind = value.get(tag, MISSING)
        variant = variants.get(kind) if type(kind) is str else None
        if variant is not None and not untagged:
            return _reader(variant)(value)
        # Variants without a tag may have any member, even the tag.
        fitting = [cls for cls, required in untagged if required <= value.keys()]
        if variant is not None:
            fitting.insert(0, variant)
        if not fitting and other is not None and type(kind) is str:
            fitting = [other]
        if not fitting and len(untagged) == 1:
            fitting = [untagged[0][0]]
        if not fitting:
            names = " or ".join(cls.__name__ for cls in classes)
            raise fail(kind, str).under(tag) if tag is not None else fail(value, names)
        errors = []
        for cls in fitting:
            try:
                return _reader(cls)(value)
            except SchemaError as error:
                errors.append(error)
        raise errors[0]

    return read


def _compiled(cls: Any) -> Read:
    """Compile the function that reads a class. What a member usually is, is checked inline."""
    members = members_of(cls)
    scope: dict[str, Any] = {
        "cls": cls, "new": object.__new__, "fail": fail, "MISSING": MISSING, "ABSENT": ABSENT,
    }  # fmt: skip
    lines = ["if type(d) is not dict: raise fail(d, dict)"]
    for i, member in enumerate(members):
        scope[f"read{i}"] = _member_reader(member)
        absent = _absent(member)
        lines.append(f"v{i} = d.get({member.wire!r}, {absent})")
        if member.type is Any:
            tests = [f"v{i} is MISSING"]
        else:
            valid = {absent, "None"} if member.is_nullable else {absent}
            tests = [f"v{i} is not {each}" for each in sorted(valid - {"MISSING"})]
            if _reads_text(member.type):
                tests.append(f"type(v{i}) is not str")
        lines.append(f"if {' and '.join(tests) or 'True'}: v{i} = read{i}(v{i})")
    lines.append("o = new(cls)")  # takes half the time of `__init__`
    lines += [f"o.{member.name} = v{i}" for i, member in enumerate(members)]
    read: Read = _function("read(d)", [*lines, "o._source = d; o._extra = None; return o"], scope)
    return read


def _reads_text(annotation: Any) -> bool:
    """Whether it is `str` or an enumeration."""
    return all(each is str or get_origin(each) is Literal for each in alternatives(annotation))


def _absent(member: Member) -> str:
    """The constant that stands for an absent member in compiled code."""
    is_constant = member.default in (None, True, False, ABSENT) and not member.is_required
    return repr(member.default) if is_constant else "MISSING"


def _function(signature: str, lines: list[str], scope: dict[str, Any]) -> Any:
    exec("\n    ".join([f"def {signature}:", *lines]), scope)
    return scope[signature.partition("(")[0]]


def _member_reader(member: Member) -> Read:
    """The function that reads a member, `MISSING` if it is absent."""
    leniency = member.leniency
    read_type: Read | None = None  # made on first use: creating one type does not create all

    def read(value: Any) -> Any:
        nonlocal read_type
        if value is MISSING and not member.is_required:
            return member.new_default()
        if value is None and Leniency.NULL_IS_DEFAULT in leniency:
            return member.new_default()
        if value is None and member.is_nullable:
            return None
        if read_type is None:
            read_type = _reader(member.type, skip_invalid=Leniency.SKIP_INVALID in leniency)
        try:
            return read_type(value)
        except SchemaError as error:
            is_lenient = Leniency.INVALID_IS_DEFAULT in leniency and not _is_strict.get()
            if is_lenient and value is not MISSING:
                return member.new_default()
            raise error.under(member.wire) from None

    return read


# --- writing ---


class _Writers(dict[type, Write]):
    """Writers by class; a missing one is created on first use."""

    def __missing__(self, cls: type) -> Write:
        if cls is dict:  # proxy code may use a dict in place of an object
            write: Write = _same
        elif issubclass(cls, Object):
            write = _compiled_writer(cls)
        else:
            raise TypeError(f"cannot write a {cls.__name__} where an ACP object belongs")
        self[cls] = write
        return write


def _same(value: Any) -> Any:
    return value


WRITERS = _Writers()


def _write_object(value: Any) -> Any:
    return WRITERS[type(value)](value)


@functools.cache
def _writer(annotation: Any) -> Write | None:
    """The function that writes values of a type; `None` if they are written unchanged."""
    choices = alternatives(annotation)
    if is_schema_type(annotation):
        return _union_writer(choices)
    if len(choices) > 1:
        return next((write for each in choices if (write := _writer(each)) is not None), None)
    if not get_args(annotation):
        return None
    write = _writer(get_args(annotation)[-1])
    if get_origin(annotation) is list:
        return lambda value: (
            value.rejoined(write)
            if type(value) is Items
            else value
            if write is None
            else [write(item) for item in value]
        )
    if write is None:
        return None
    return lambda value: {key: write(item) for key, item in value.items()}


def _union_writer(classes: tuple[Any, ...]) -> Write:
    """Return a writer that adds the tag to variants that do not write it themselves."""
    tag = _tag_of(classes)
    tags = {cls: tags_of(cls)[tag] for cls in classes if tag and cls._union_tag == tag}
    if tag is None or not tags:
        return _write_object
    wire = tag

    def write(value: Any) -> Any:
        out = WRITERS[type(value)](value)
        if type(value) in tags and out.get(wire) != tags[type(value)]:
            return {wire: tags[type(value)], **out}
        return out

    return write


def _compiled_writer(cls: Any) -> Write:
    """Compile the function that writes a class: it copies the source, and writes the members whose
    fields were modified."""
    tags = {tag: value for tag, value in tags_of(cls).items() if tag != cls._union_tag}
    scope: dict[str, Any] = {
        "MISSING": MISSING, "ABSENT": ABSENT, "NOTHING": _NOTHING, "TAGS": tags,
        "with_extra": _with_extra, "KNOWN": known_members(cls),
    }  # fmt: skip
    lines = [
        "s = o._source",
        "if s is None: s = NOTHING; out = TAGS.copy()",
        "else: out = s.copy()",
        *(f"if out.get({k!r}) != {v!r}: out = {{**TAGS, **out, **TAGS}}" for k, v in tags.items()),
    ]
    for i, member in enumerate(members_of(cls)):
        scope[f"settle{i}"] = _settler(member)
        scope[f"write{i}"] = write = _writer(member.type)
        changed = f"if v is not s.get({member.wire!r}, {_absent(member)}): settle{i}(out, s, v)"
        lines.append(f"v = o.{member.name}")
        if write is None:
            lines.append(changed)
        else:
            # An empty value may be the default for an absent or invalid member, which is then kept.
            lines += [
                f"if v is None or v is ABSENT:\n        {changed}",
                f"elif v := write{i}(v): out[{member.wire!r}] = v",
                f"else: settle{i}(out, s, v)",
            ]
    lines += ["if o._extra is not None: with_extra(out, o._extra, KNOWN)", "return out"]
    written: Write = _function("write(o)", lines, scope)
    return written


def _settler(member: Member) -> Callable[[dict[str, Any], dict[str, Any], Any], None]:
    """Return the function that writes a member, unless the source has the same value: then the
    source's spelling is kept.

    `None` removes the member, unless null is a value of its own.
    """
    wire, read = member.wire, _member_reader(member)
    has_null = member.is_required or member.default is ABSENT

    def settle(out: dict[str, Any], source: dict[str, Any], value: Any) -> None:
        was = source.get(wire, MISSING)
        try:
            if was is not MISSING or not member.is_required:
                was = read(was)
        except SchemaError:
            was = MISSING
        if _is_unchanged(was, value):
            return
        if value is ABSENT or (value is None and not has_null):
            out.pop(wire, None)
        else:
            out[wire] = value

    return settle


def _is_unchanged(was: Any, value: Any) -> bool:
    if isinstance(value, (list, dict)):
        is_new = isinstance(was, Object) and not was._source
        return not value and (is_new or (isinstance(was, (list, dict)) and not was))
    return type(was) is type(value) and bool(was == value)


def _with_extra(out: dict[str, Any], extra: dict[str, Any], known: frozenset[str]) -> None:
    for wire in [wire for wire in out if wire not in known and wire not in extra]:
        del out[wire]
    out.update(extra)
