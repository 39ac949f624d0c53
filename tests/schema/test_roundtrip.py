"""Every type against the official schema: values survive, new objects are valid."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.schema_strategies import check_each, damaged, definitions, valid, validator

from conductor.schema import _wire_v1, _wire_v2, v1, v2
from conductor.schema._values import Items
from conductor.schema.base import Object
from conductor.schema.convert import SchemaError, dumps, structure, unstructure

pytestmark = pytest.mark.hypothesis
MODULES: dict[int, Any] = {1: v1, 2: v2}
WIRES: dict[int, Any] = {1: _wire_v1, 2: _wire_v2}


def _cases() -> list[tuple[str, int, str, str]]:
    """State, version, definition and the name of its Python type."""
    found = []
    for version, wire in WIRES.items():
        known = wire.OBJECTS.keys() | wire.UNIONS.keys()
        newest = definitions("newest", version)
        for name in newest:
            if name in known:
                found.append(("newest", version, name, name))
        for name in definitions("2026-08", version):
            if name in known and name not in newest:
                found.append(("2026-08", version, name, name))
            elif f"{name}Earlier" in known:
                found.append(("2026-08", version, name, f"{name}Earlier"))
    return found


# What a union gives to all its variants is in these classes too; they are tested as its variants.
_WITH_BASE = {
    "ElicitationFormMode",
    "ElicitationUrlMode",
    "SessionConfigSelect",
    "SessionConfigBoolean",
}
CASES = [case for case in _cases() if case[3] not in _WITH_BASE]
IDS = [f"v{version}-{python}" for _, version, _, python in CASES]
few = settings(
    max_examples=max(1, settings().max_examples // 25),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _written(obj: Any) -> str:
    """What `dumps` writes, spelled as `_text` does: values and their order, not white space."""
    return _text(json.loads(dumps(obj)))


def _fresh(value: Any) -> Any:
    """The same fields in objects that never saw the wire."""
    if isinstance(value, Object):
        fields = [f for f in attrs.fields(type(value)) if not f.name.startswith("_")]
        return type(value)(**{f.alias: _fresh(getattr(value, f.name)) for f in fields})
    if isinstance(value, list):
        return [_fresh(item) for item in value]
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    return value


def _tagged(instance: Any, version: int, python: str) -> Any:
    """With the tag that the class always writes, as in the union it belongs to."""
    written = WIRES[version].OBJECTS.get(python, (None,))[0]
    return {**instance, written[0]: written[1]} if written and type(instance) is dict else instance


def _in_its_place(written: Any, python: str, instance: Any, version: int) -> Any:
    """With the tag of a class that also stands where it has none (`ToolCallUpdate`): made in
    Python, it is written with its tag only inside of what holds it."""
    own_tag, tags = WIRES[version].OBJECTS.get(python, (None, ()))[:2]
    if own_tag is None and type(instance) is dict:
        return {tag: instance[tag] for tag in tags if tag in instance} | written
    return written


def _type(version: int, python: str) -> Any:
    return getattr(MODULES[version], python)


@pytest.mark.parametrize(("state", "version", "name", "python"), CASES, ids=IDS)
def test_valid_instance_is_written_back_made_again_and_changed_by_one_member_only(
    state: str, version: int, name: str, python: str
) -> None:
    def check(instance: Any) -> None:
        instance = _tagged(instance, version, python)
        _is_written_back_as_it_was(instance, _type(version, python))
        _is_valid_when_made_in_python(instance, (state, version, name, python))
        if python in WIRES[version].OBJECTS:
            _setting_one_field_changes_that_member_only(instance, version, python)

    check_each(few, check, valid(state, version, name))


def _is_written_back_as_it_was(instance: Any, python_type: Any) -> None:
    typed = structure(_text(instance).encode(), python_type)
    assert _written(typed) == _text(instance)
    assert structure(unstructure(typed), python_type) == typed


def _is_valid_when_made_in_python(instance: Any, case: tuple[str, int, str, str]) -> None:
    state, version, name, python = case
    made = _fresh(structure(_text(instance).encode(), _type(version, python)))
    written = _in_its_place(json.loads(dumps(made)), type(made).__name__, instance, version)
    errors = list(validator(state, version, name).iter_errors(written))
    assert not errors, dumps(made)


def _setting_one_field_changes_that_member_only(instance: Any, version: int, python: str) -> None:
    for attribute, wire, spec, flags, default in WIRES[version].OBJECTS[python][2]:
        typed = structure(_text(instance).encode(), _type(version, python))
        if spec == "str":
            setattr(typed, attribute, "edited")
            assert _written(typed) == _text({**instance, wire: "edited"})
        if "r" not in flags and "n" in flags:
            null = structure(_text(instance).encode(), _type(version, python))
            setattr(null, attribute, None)
            expected = dict(instance)
            if default == "ABSENT":
                expected[wire] = None
            elif expected.get(wire) is not None:
                del expected[wire]
            assert _written(null) == _text(expected)


@pytest.mark.parametrize(("state", "version", "name", "python"), CASES, ids=IDS)
def test_damaged_instance_is_refused_with_its_path_or_written_back_as_it_was(
    state: str, version: int, name: str, python: str
) -> None:
    def check(instance: Any) -> None:
        instance = _tagged(instance, version, python)
        try:
            typed = structure(_text(instance).encode(), _type(version, python))
        except SchemaError as error:
            refused = error
        else:
            assert _written(typed) == _text(instance)
            return
        assert not validator(state, version, name).is_valid(instance), refused
        _follow(instance, refused.path)

    check_each(few, check, damaged(state, version, name))


def _follow(instance: Any, path: list[str | int]) -> None:
    """The path of an error leads to a member, or to the location of a missing one."""
    for step in path[:-1]:
        instance = instance[step]
    if path and isinstance(path[-1], int):
        assert path[-1] < len(instance)
    elif path:
        assert isinstance(instance, dict)


@few
@given(st.data())
def test_equal_wire_forms_make_equal_objects(data: st.DataObject) -> None:
    instance = data.draw(valid("newest", 2, "SessionUpdate"))
    one, other = (structure(_text(instance).encode(), v2.SessionUpdate) for _ in range(2))
    assert one == other
    other.extra["another"] = 1
    assert one != other


def test_every_definition_has_a_type() -> None:
    for state, version, name, _ in CASES:
        assert hasattr(MODULES[version], name), (state, name)
    for version, module in MODULES.items():
        for state in ("newest", "2026-08"):
            for name, schema in definitions(state, version).items():
                assert "x-docs-ignore" in schema or hasattr(module, name), name


def test_items_list_is_only_made_when_something_was_left_out() -> None:
    clean = structure(
        {"availableModes": [{"id": "a", "name": "A"}], "currentModeId": "a"}, v1.SessionModeState
    )
    assert type(clean.available_modes) is list
    gap = structure({"availableModes": [5], "currentModeId": "a"}, v1.SessionModeState)
    assert type(gap.available_modes) is Items
