"""Create the functions that decode and encode each type, on first use of the type.

cattrs' own generators drop the dict after reading its fields; these keep it (`base`), give errors a
path, and apply the schema's leniency. `convert.converter` offers them to cattrs as hooks.

A row of the wire table has, for one class, the tag that it writes, the names of its tags, and for
each field its name, wire name, spec, flags and default.

spec: `str int float bool any dict null`, a class or union, `[X]`, `{X}` (a map), `A|B` (scalars),
`A/B` (classes distinguished by their required members).
flags: `r` required · `n` null is a value · `e` an invalid value reads as the default
(`x-deserialize-default-on-error`) · `s` invalid items are left out
(`x-deserialize-skip-invalid-items`) · `0` null reads as the default
(`x-deserialize-default-on-null`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from conductor.schema._code import (
    CONSTANTS,
    FieldRow,
    compiled,
    read_lines,
    settle,
    with_extra,
    write_lines,
)
from conductor.schema._values import (
    MISSING,
    SCALARS,
    Read,
    SchemaError,
    Write,
    choice_reader,
    fail,
    list_reader,
    list_writer,
    map_reader,
    map_writer,
)
from conductor.schema.base import ABSENT, Object

ObjectRow: TypeAlias = tuple[tuple[str, str] | None, tuple[str, ...], tuple[FieldRow, ...]]
UnionRow: TypeAlias = tuple[str | None, dict[str, str], tuple[str, ...], str | None]

_NOTHING: dict[str, Any] = {}


class _Writers(dict[type, Write]):
    """Writers by class; a missing one is created on first use."""

    def __missing__(self, cls: type) -> Write:
        if cls is dict:  # proxy code may use a dict in place of an object
            write: Write = _same
        elif issubclass(cls, Object):
            write = hooks_of(cls).make_write(cls)
        else:
            raise TypeError(f"cannot write a {cls.__name__} where an ACP object belongs")
        self[cls] = write
        return write


def _same(value: Any) -> Any:
    return value


WRITERS = _Writers()


class ConverterHooks:
    """The readers and writers of one protocol version."""

    def __init__(self, version: str) -> None:
        self.types = importlib.import_module(f"conductor.schema.{version}")
        wire = importlib.import_module(f"conductor.schema._wire_{version}")
        self.objects: dict[str, ObjectRow] = wire.OBJECTS
        self.unions: dict[str, UnionRow] = wire.UNIONS
        self._reads: dict[str, Read] = {}
        self._writes: dict[str, Write | None] = {}

    def read(self, spec: str) -> Read:
        """The function that reads a value of this spec, created on the first call."""
        if spec not in self._reads:
            self._reads[spec] = self._make_read(spec)
        return self._reads[spec]

    def _make_read(self, spec: str) -> Read:
        if spec in SCALARS:
            return SCALARS[spec]
        if spec in self.objects:
            return self._read_object(spec)
        if spec in self.unions:
            return self._read_union(*self.unions[spec])
        if spec[0] == "[":
            return list_reader(self.read(spec[1:-1]), spec[1:-1], skip_invalid=False)
        if spec[0] == "{":
            return map_reader(self.read(spec[1:-1]), spec[1:-1])
        if "|" in spec:
            return choice_reader([self.read(choice) for choice in spec.split("|")], spec)
        return self._read_union(None, {}, tuple(spec.split("/")), None)

    def write(self, spec: str) -> Write | None:
        """The function that writes a value of this spec; `None` if it is written unchanged."""
        if spec not in self._writes:
            self._writes[spec] = self._make_write(spec)
        return self._writes[spec]

    def _make_write(self, spec: str) -> Write | None:
        if spec in SCALARS or "|" in spec:
            return None
        if spec[0] == "[":
            return list_writer(self.write(spec[1:-1]))
        if spec[0] == "{":
            return map_writer(self.write(spec[1:-1]))
        if spec in self.unions:
            return self._write_union(spec)
        return _write_object

    # --- unions ---

    def _read_union(
        self,
        tag: str | None,
        variants: dict[str, str],
        untagged: tuple[str, ...],
        other: str | None,
    ) -> Read:
        by_value: dict[str, Read] = {}
        required = [
            (name, [wire for _, wire, _, flags, _ in self.objects[name][2] if "r" in flags])
            for name in untagged
        ]
        expected = " or ".join(untagged)

        def read_either(reader: Read, value: Any) -> Any:
            try:
                return reader(value)
            except SchemaError:
                for name, _ in required:  # these variants may have any member, even the tag
                    with contextlib.suppress(SchemaError):
                        return self.read(name)(value)
                raise

        def read(value: Any) -> Any:
            if type(value) is not dict:
                raise fail(value, "object")
            kind = value.get(tag, MISSING)
            if type(kind) is str:
                reader = by_value.get(kind)
                if reader is None and kind in variants:
                    reader = by_value[kind] = self.read(variants[kind])
                if reader is not None:
                    return reader(value) if not required else read_either(reader, value)
            for name, members in required:
                if all(member in value for member in members):
                    return self.read(name)(value)
            if other is not None and type(kind) is str:
                return self.read(other)(value)
            if len(required) == 1:
                return self.read(required[0][0])(value)
            if tag is None:
                raise SchemaError(f"expected {expected}, got neither")
            raise fail(kind, "string").under(tag)

        return read

    def _write_union(self, name: str) -> Write:
        """Return a writer that adds the tag to variants that do not write it themselves."""
        tag, variants, _, _ = self.unions[name]
        tags: dict[type, str] = {}
        for value, target in variants.items():
            for variant in self._classes(target):
                if self.objects[variant][0] != (tag, value):
                    tags[getattr(self.types, variant)] = value
        if tag is None or not tags:
            return _write_object
        wire = tag

        def write(value: Any) -> Any:
            out = WRITERS[type(value)](value)
            if type(value) in tags and out.get(wire) != tags[type(value)]:
                return {wire: tags[type(value)], **out}
            return out

        return write

    def _classes(self, name: str) -> list[str]:
        if name in self.objects:
            return [name]
        _, variants, untagged, other = self.unions[name]
        members = [*variants.values(), *untagged, *([other] if other else [])]
        return [cls for member in members for cls in self._classes(member)]

    # --- objects ---

    def _read_object(self, name: str) -> Read:
        cls = getattr(self.types, name)
        _, tags, fields = self.objects[name]
        cls._wire_names = frozenset((*tags, *(wire for _, wire, *_ in fields)))
        scope: dict[str, Any] = {
            "cls": cls, "fail": fail, "SchemaError": SchemaError,
            "MISSING": MISSING, "ABSENT": ABSENT,
        }  # fmt: skip
        lines = ["def read(d):", "    if type(d) is not dict: raise fail(d, 'object')"]
        for i, row in enumerate(fields):
            if row[2] not in ("str", "any"):
                scope[f"read{i}"] = self._field_reader(row)
            scope[f"new{i}"] = self._default_factory(row)
            lines += read_lines(i, row)
        arguments = "".join(f"v{i}, " for i in range(len(fields)))
        lines.append(f"    return cls({arguments}_source=d)")
        return cast(Read, compiled("\n".join(lines), scope, f"<read {name}>", "read"))

    def _field_reader(self, row: FieldRow) -> Read:
        """Return a field's reader, resolved on first use: creating one type does not create all."""
        _, _, spec, flags, _ = row
        made: Read | None = None

        def read(value: Any) -> Any:
            nonlocal made
            if made is None:
                if "s" in flags:
                    made = list_reader(self.read(spec[1:-1]), spec[1:-1], skip_invalid=True)
                else:
                    made = self.read(spec)
            return made(value)

        return self._reads.get(spec, read) if "s" not in flags else read

    def _default_factory(self, row: FieldRow) -> Callable[[], Any]:
        _, _, spec, _, default = row
        match default:
            case "new":
                cls = getattr(self.types, spec)
                return lambda: cls()
            case "[]":
                return list
            case "{}":
                return dict
            case "None" | "True" | "False" | "ABSENT":
                return lambda: CONSTANTS[default]
            case _:
                return lambda: default.strip('"')

    def make_write(self, cls: type[Object]) -> Write:
        name = cls.__name__
        written, tags, fields = self.objects[name]
        cls._wire_names = frozenset((*tags, *(wire for _, wire, *_ in fields)))
        scope: dict[str, Any] = {
            "WRITERS": WRITERS, "MISSING": MISSING, "ABSENT": ABSENT, "NOTHING": _NOTHING,
            "settle": settle, "with_extra": with_extra, "KNOWN": cls._wire_names,
        }  # fmt: skip
        fresh = f"{{{written[0]!r}: {written[1]!r}}}" if written else "{}"
        lines = [
            "def write(o):",
            "    s = o._source",
            f"    if s is None: s = NOTHING; out = {fresh}",
            "    else: out = s.copy()",
        ]
        if written:
            lines.append(f"    if s is not NOTHING and out.get({written[0]!r}) != {written[1]!r}:")
            lines.append(f"        out = {{**{fresh}, **out, **{fresh}}}")
        for i, row in enumerate(fields):
            scope[f"reread{i}"] = self._reread(row)
            if (write := self.write(row[2])) is not None:
                scope[f"write{i}"] = write
            lines += write_lines(i, row, is_scalar=write is None)
        lines += [
            "    if o._extra is not None: with_extra(out, o._extra, KNOWN)",
            "    return out",
        ]
        return cast(Write, compiled("\n".join(lines), scope, f"<write {name}>", "write"))

    def _reread(self, row: FieldRow) -> Callable[[dict[str, Any]], Any]:
        """Return a function that reads one field from the source again, to detect changes."""
        scope: dict[str, Any] = {
            "fail": fail, "SchemaError": SchemaError, "MISSING": MISSING, "ABSENT": ABSENT,
            "read0": self._field_reader(row), "new0": self._default_factory(row),
        }  # fmt: skip
        code = "\n".join(["def reread(d):", *read_lines(0, row), "    return v0"])
        made: Callable[[dict[str, Any]], Any] | None = None

        def reread(source: dict[str, Any]) -> Any:
            nonlocal made
            if made is None:
                made = compiled(code, scope, f"<reread {row[0]}>", "reread")
            return made(source)

        return reread


def _write_object(value: Any) -> Any:
    return WRITERS[type(value)](value)


_hooks: dict[str, ConverterHooks] = {}


def hooks_of(cls: type[Object]) -> ConverterHooks:
    """The hooks of the version to which a generated class belongs."""
    package, _, version = cls.__module__.rpartition(".")
    if package != "conductor.schema":
        raise TypeError(f"{cls.__name__} is not one of the schema's types")
    if version not in _hooks:
        _hooks[version] = ConverterHooks(version)
    return _hooks[version]
