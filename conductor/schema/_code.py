"""Source text of the functions that decode and encode objects, field by field.

A field's row of the wire table is its name, wire name, spec, flags and default; `_hooks` explains
them. A reading function takes the JSON object `d`. A writing function takes the typed object `o`
and copies its source `s` to `out`. A member is kept if its field is unmodified: for scalars, if it
is the same Python object, so that the usual case is one comparison; `settle` decides the rest.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from conductor.schema._values import MISSING, Items, Read, SchemaError
from conductor.schema.base import ABSENT, Object

FieldRow: TypeAlias = tuple[str, str, str, str, str]

CONSTANTS = {"None": None, "True": True, "False": False, "ABSENT": ABSENT}


def read_lines(i: int, row: FieldRow) -> list[str]:
    """Code that sets `v<i>` to the value of one field of `d`. `new<i>()` creates a non-constant
    default; `read<i>` reads any type except strings."""
    _, wire, spec, flags, default = row
    v, required = f"v{i}", "r" in flags
    constant = default if default in CONSTANTS else None
    missing = "MISSING" if required or constant is None else constant
    use_default = f"{v} = {constant or f'new{i}()'}"
    lines = [f"    {v} = d.get({wire!r}, {missing})"]
    if spec == "any":
        if required:
            lines.append(f"    if {v} is MISSING: raise fail({v}, 'a value').under({wire!r})")
        return lines

    error = f"fail({v}, 'string')" if spec == "str" else "error"
    invalid = [f"raise {error}.under({wire!r})"]
    if "e" in flags:
        invalid = [f"if {v} is MISSING: {invalid[0]}"] if required else []
        invalid.append(use_default)

    defaulted = [f"{v} is MISSING"] if missing == "MISSING" and not required else []
    if "0" in flags:
        defaulted.append(f"{v} is None")
    kept = [] if missing == "MISSING" else [missing]
    if "n" in flags and "None" not in kept:
        kept.append("None")
    tests = [f"{v} is not {value}" for value in kept]
    word = "if"
    if defaulted:
        lines.append(f"    if {' or '.join(defaulted)}: {use_default}")
        word = "elif"
    if spec == "str":
        tests.append(f"type({v}) is not str")
        return [*lines, f"    {word} {' and '.join(tests)}:", *(f"        {x}" for x in invalid)]
    if tests or defaulted:
        lines.append(f"    {word} {' and '.join(tests)}:" if tests else "    else:")
    indent = "        " if tests or defaulted else "    "
    lines += [f"{indent}try: {v} = read{i}({v})", f"{indent}except SchemaError as error:"]
    return [*lines, *(f"{indent}    {x}" for x in invalid)]


def write_lines(i: int, row: FieldRow, *, is_scalar: bool) -> list[str]:
    """Code that updates `out` with one field of `o`. `write<i>` writes non-scalars; `reread<i>`
    reads the field from the source again."""
    name, wire, spec, flags, default = row
    required = "r" in flags
    missing = default if default in CONSTANTS and not required else "MISSING"
    nulls = required or default == "ABSENT"
    unless_source = f"if v is not s.get({wire!r}, {missing}):"
    lines = [f"    v = o.{name}"]
    if is_scalar:
        lines.append(f"    {unless_source}")
        if required or missing != "MISSING":
            lines.append(f"        if {wire!r} not in s: out[{wire!r}] = v")
            lines.append(f"        else: settle(out, s, {wire!r}, v, reread{i}, {nulls})")
        else:
            lines.append(f"        settle(out, s, {wire!r}, v, reread{i}, {nulls})")
        return lines
    indent = "    "
    if not required or "n" in flags:
        lines += [
            "    if v is None or v is ABSENT:",
            f"        {unless_source} settle(out, s, {wire!r}, v, reread{i}, {nulls})",
            "    else:",
        ]
        indent = "        "
    lines.append(f"{indent}w = write{i}(v)")
    if missing == "MISSING" and (not required or spec[0] == "["):
        # An empty value may be the default for an absent or invalid member, which is then kept.
        lines.append(f"{indent}if w: out[{wire!r}] = w")
        lines.append(f"{indent}else: settle(out, s, {wire!r}, w, reread{i}, {nulls})")
    else:
        lines.append(f"{indent}out[{wire!r}] = w")
    return lines


def compiled(code: str, scope: dict[str, Any], filename: str, name: str) -> Any:
    exec(compile(code, filename, "exec"), scope)
    return scope[name]


def settle(
    out: dict[str, Any], source: dict[str, Any], wire: str, value: Any, reread: Read, nulls: bool
) -> None:
    """Write `value`, unless the source has the same value: then keep the source's spelling.

    `None` removes the member, unless null is a valid value (`nulls`).
    """
    try:
        was = reread(source)
    except SchemaError:
        was = MISSING
    if _unchanged(was, value, wire in source):
        if type(value) is Items:
            out[wire] = value.rejoined(None)
        return
    if value is ABSENT or (value is None and not nulls):
        out.pop(wire, None)
    else:
        out[wire] = value.rejoined(None) if type(value) is Items else value


def _unchanged(was: Any, value: Any, present: bool) -> bool:
    if was is value:
        return True
    if isinstance(value, (list, dict)):
        empty_object = isinstance(was, Object) and was._source is None
        return not value and (empty_object or (isinstance(was, (list, dict)) and not was))
    return type(was) is type(value) and bool(was == value)


def with_extra(out: dict[str, Any], extra: dict[str, Any], known: frozenset[str]) -> None:
    for wire in [wire for wire in out if wire not in known and wire not in extra]:
        del out[wire]
    out.update(extra)
