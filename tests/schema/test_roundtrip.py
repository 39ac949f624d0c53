"""Every type against the official schema: every member, every variant, every leniency."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.schema_instances import Schema, Shape, attribute
from support.schema_strategies import definitions

import conductor.testing
from conductor.schema import METHODS_BY_VERSION, params_type, result_type, v1, v2
from conductor.schema.base import ABSENT, Object, tags_of
from conductor.schema.convert import SchemaError, dumps, is_schema_type, structure, unstructure

TYPES: dict[int, Any] = {1: v1, 2: v2}
STATES = [(state, version) for state in ("newest", "2026-08") for version in (1, 2)]
SCOPES = {"ElicitationSessionScope", "ElicitationRequestScope"}
SCOPE_IDS = {"sessionId", "requestId"}
RECORDINGS = Path(conductor.testing.__file__).parent / "recordings"


def text_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def shapes_of_types(state: str, version: int) -> Iterator[tuple[str, Shape, Any]]:
    """Definition, one of its shapes, and the Python type, for each class and union that is not only
    a variant of a union."""
    schema, newest = Schema(state, version), definitions("newest", version)
    for name in schema.definitions:
        if state != "newest":
            earlier = getattr(TYPES[version], f"{name}Earlier", None)
            python = earlier or (None if name in newest else getattr(TYPES[version], name, None))
        else:
            python = getattr(TYPES[version], name)
        if is_schema_type(python) and not (isinstance(python, type) and is_variant(python)):
            for shape in schema.shapes({"$ref": f"#/$defs/{name}"}):
                yield name, shape, python


def is_variant(cls: type[Object]) -> bool:
    """Whether a class is only the variant of a union: it always writes its tag."""
    return bool({*tags_of(cls)} - {cls._union_tag})


def made_in_python(value: Any) -> Any:
    """The same fields in objects that never saw the wire."""
    if isinstance(value, Object):
        fields = [f for f in attrs.fields(type(value)) if not f.name.startswith("_")]
        made = {f.alias: made_in_python(getattr(value, f.name)) for f in fields}
        return type(value)(**made, extra=dict(value.extra))
    if isinstance(value, list):
        return [made_in_python(item) for item in value]
    if isinstance(value, dict):
        return {key: made_in_python(item) for key, item in value.items()}
    return value


def default_of(typed: Object, wire: str) -> Any:
    """The default of the field of a member; NOTHING if it has none."""
    field = getattr(attrs.fields(type(typed)), attribute(wire), None)
    default = attrs.NOTHING if field is None else field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def without_defaults(typed: Any, value: Any) -> Any:
    """The JSON value without the members that are not written for an object made in Python."""
    if isinstance(typed, Object):
        return {
            wire: without_defaults(getattr(typed, attribute(wire), None), item)
            for wire, item in value.items()
            if wire in typed.extra or getattr(typed, attribute(wire), 0) != default_of(typed, wire)
        }
    if isinstance(typed, list):
        return [without_defaults(one, item) for one, item in zip(typed, value, strict=True)]
    if isinstance(typed, dict):
        return {key: without_defaults(typed[key], item) for key, item in value.items()}
    return value


def differences(
    schema: Schema, name: str, python_type: Any, value: Any, version: int, *, tags: Any = ()
) -> Iterator[str]:
    """What is wrong with the typed object of a JSON value, and with the JSON of this object; `tags`
    are written in the union only."""
    text = text_of(value)
    try:
        typed = structure(text, python_type)
    except SchemaError as error:
        yield f": {error}"
        return
    yield from schema.differences(typed, {"$ref": f"#/$defs/{name}"}, value, TYPES[version])
    if dumps(typed) != text:
        yield f": written as {dumps(typed)!r}"
    made = unstructure(made_in_python(typed))
    expected = without_defaults(typed, value)
    if made != {wire: item for wire, item in expected.items() if wire in made or wire not in tags}:
        yield f": made in Python, written as {made}"
    if structure(unstructure(typed), python_type) != typed:
        yield ": not equal to itself, read again"


@pytest.mark.parametrize(("state", "version"), STATES)
def test_every_member_and_variant_is_read_where_it_belongs_and_written_as_it_was(
    state: str, version: int
) -> None:
    schema, wrong, instances = Schema(state, version), [], 0
    for name, shape, python_type in shapes_of_types(state, version):
        for instance in schema.instances(shape):
            instances += 1
            tags = shape.constants
            for text in differences(schema, name, python_type, instance, version, tags=tags):
                wrong.append(f"{name}{text}: {instance}")
    assert not wrong, report(wrong, instances)
    assert instances > (2000 if state == "newest" else 50)


def report(wrong: list[str], instances: int) -> str:
    return "\n".join([f"{len(wrong)} differences in {instances} instances", *wrong[:20]])


@pytest.mark.parametrize("version", [1, 2])
def test_setting_a_field_changes_that_member_and_nothing_else(version: int) -> None:
    schema, wrong, edits = Schema("newest", version), [], 0
    for name, shape, python_type in shapes_of_types("newest", version):
        smallest, whole = schema.minimal(shape), schema.full(shape)
        other = schema.full(shape)
        source = structure(text_of(other), python_type)
        for wire, node in shape.members.items():
            if "const" in node or other[wire] is None:
                continue
            value, default = getattr(source, attribute(wire)), default_of(source, wire)
            if value == default:  # one that is not written
                continue
            expected = [(base, value, {**base, wire: other[wire]}) for base in (smallest, whole)]
            absent = {key: item for key, item in whole.items() if key != wire}
            if default is ABSENT:
                expected += [(whole, None, {**whole, wire: None}), (whole, ABSENT, absent)]
            elif schema.allows(node, None):
                kept = {**whole, wire: None} if default is attrs.NOTHING else absent
                expected.append((whole, None, kept))
            for base, new, written in expected:
                edits += 1
                typed = structure(text_of(base), python_type)
                setattr(typed, attribute(wire), new)
                if dumps(typed) != text_of(written):
                    wrong.append(f"{name}.{wire} = {new!r}: {dumps(typed)!r} for {written}")
    assert not wrong, report(wrong, edits)
    assert edits > 1500


@pytest.mark.parametrize("version", [1, 2])
def test_invalid_values_are_errors_with_their_path_or_defaults_as_the_schema_says(
    version: int,
) -> None:
    schema, wrong, cases = Schema("newest", version), [], 0
    for name, shape, python_type in shapes_of_types("newest", version):
        whole = schema.full(shape)
        python_class = type(structure(text_of(whole), python_type))
        for wire, node in shape.members.items():
            is_tag = "const" in node or (shape.other_of is not None and wire in shape.required)
            for value, path in invalid_values(schema, node, whole[wire]):
                if value is None and SCOPES & {*shape.names} and wire in SCOPE_IDS:
                    continue  # one of them is required, and neither in Python
                if wire == "stopReason" and "IdleStateUpdate" in shape.names:
                    continue  # one member for all shapes: "is unknown, or null"
                cases += 1
                text = text_of({**whole, wire: value})
                default_on_null = value is None and node.get("x-deserialize-default-on-null")
                try:
                    typed = structure(text, python_type)
                except SchemaError as error:
                    if node.get("x-deserialize-default-on-error") or default_on_null:
                        wrong.append(f"{name}.{wire}: {error}: {value}")
                    elif not is_tag and error.path != [wire, *path]:
                        wrong.append(f"{name}.{wire}: path {error.path}: {value}")
                    continue
                if is_tag or type(typed) is not python_class:
                    # An untagged variant may have any member, also the tag of another.
                    continue
                if not (node.get("x-deserialize-default-on-error") or default_on_null):
                    wrong.append(f"{name}.{wire}: no error: {value}")
                found = getattr(typed, attribute(wire))
                wrong += [
                    f"{name}.{wire}{text}: {value}"
                    for text in schema.of_default(found, node, TYPES[version])
                ]
                if dumps(typed) != text:
                    wrong.append(f"{name}.{wire}: written as {dumps(typed)!r}")
    assert not wrong, report(wrong, cases)
    assert cases > 1000


def invalid_values(
    schema: Schema, node: dict[str, Any], valid: Any
) -> Iterator[tuple[Any, list[Any]]]:
    """Values of other types than those of a member, and the path of the error below the member."""
    others = (None, 7, "wrong") if isinstance(valid, list) else (None, 7, "wrong", ["wrong"])
    yield from ((value, []) for value in others if not schema.allows(node, value))
    if isinstance(valid, list) and not node.get("x-deserialize-skip-invalid-items"):
        bad = [value for value in (7, "wrong") if not schema.allows(node, [value])]
        yield from (([*valid, value], [len(valid)]) for value in bad[:1])
    is_map = any(shape.kind == "map" for shape in schema.shapes(node))
    if is_map and not schema.allows(node, {"key": 7}):
        yield {**valid, "key": 7}, ["key"]


@pytest.mark.parametrize("version", [1, 2])
def test_invalid_items_are_left_out_and_written_back_where_the_schema_says_so(
    version: int,
) -> None:
    schema, lists = Schema("newest", version), 0
    for _, shape, python_type in shapes_of_types("newest", version):
        whole = schema.full(shape)
        for wire, node in shape.members.items():
            if not node.get("x-deserialize-skip-invalid-items"):
                continue
            lists += 1
            first, last = whole[wire]
            instance = {**whole, wire: [5, first, ["wrong"], last]}
            typed = structure(text_of(instance), python_type)
            clean = structure(text_of(whole), python_type)
            items = getattr(typed, attribute(wire))
            assert items == getattr(clean, attribute(wire))
            assert dumps(typed) == text_of(instance)
            items.pop()
            assert dumps(typed) == text_of({**whole, wire: [5, first, ["wrong"]]})
    assert lists > 20


def conversations() -> Iterator[tuple[str, int, str, str, Any]]:
    """Whole conversations with real agents, and the examples of the pages of the specification:
    source, version, method, part, value."""
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        methods: dict[Any, str] = {}
        for record in map(json.loads, path.read_text("utf-8").splitlines()):
            if record["type"] == "response":
                if not record["is_error"]:
                    method = methods[record["to"], record["id"]]
                    yield path.stem, 1, method, "result", record["payload"]
            else:
                methods[record["from"], record.get("id")] = record["method"]
                yield path.stem, 1, record["method"], "params", record["params"]
    examples = Path(__file__).with_name("spec_examples.jsonl").read_text("utf-8")
    for example in map(json.loads, examples.splitlines()):
        part = "params" if "params" in example else "result"
        yield example["page"], example["version"], example["method"], part, example[part]


def test_real_messages_are_read_whole_and_written_as_they_were() -> None:
    wrong, messages = [], 0
    schemas = {case: Schema(*case) for case in STATES}
    for source, version, method, part, value in conversations():
        if method not in METHODS_BY_VERSION[version]:  # an extension of the agent
            continue
        messages += 1
        described = METHODS_BY_VERSION[version][method]
        name = described.params if part == "params" else described.result
        python_type = (params_type if part == "params" else result_type)(method, version)
        state = "newest" if name in schemas["newest", version].definitions else "2026-08"
        for text in differences(schemas[state, version], name, python_type, value, version):
            wrong.append(f"{source}: {method} {part}{text}: {value}")
    assert not wrong, report(wrong, messages)
    assert messages > 250


def test_every_definition_has_a_type() -> None:
    for version, types in TYPES.items():
        methods = {n for n, s in definitions("2026-08", version).items() if s.get("x-method")}
        for name in definitions("newest", version).keys() | methods:
            assert hasattr(types, name), name


def test_unequal_unknown_members_make_unequal_objects() -> None:
    one, other = (
        structure({"sessionUpdate": "plan_removed", "planId": "p"}, v2.SessionUpdate)
        for _ in range(2)
    )
    assert one == other
    other.extra["another"] = 1
    assert one != other
