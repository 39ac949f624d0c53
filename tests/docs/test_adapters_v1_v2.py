"""docs/adapters-v1-v2.md has each method, update and type of both schemas, and what differs in
them: each member and value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.schema_strategies import definitions

from conductor.schema import METHODS_BY_VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "adapters-v1-v2.md").read_text()
METHODS, UPDATES, MEMBERS, TYPES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
MEMBERS, OTHER_FORM, VALUES = re.split(
    "^Of the types.*another form|^Values", MEMBERS, flags=re.MULTILINE
)
_MESSAGES = re.compile(r"(Agent|Client|Proxy)(Request|Response|Notification)")
LIMITS = {
    *("description", "title", "format", "default", "examples"),
    *("minimum", "maximum", "minItems", "minLength", "pattern", "propertyNames"),
}
"""Members of a schema that say nothing of types."""


def names(text: str) -> set[str]:
    return set(re.findall(r"`([$\w/]+)`", text))


@pytest.mark.parametrize("version", [1, 2])
def test_each_method_has_a_row(version: int) -> None:
    methods = METHODS_BY_VERSION[version].values()
    assert {each.name for each in methods if not each.earlier} <= names(METHODS)


@pytest.mark.parametrize("version", [1, 2])
def test_each_update_has_a_row(version: int) -> None:
    update = definitions("newest", version)["SessionUpdate"]
    variants = update.get("oneOf") or update["anyOf"]
    kinds = [each["properties"]["sessionUpdate"].get("const") for each in variants]
    assert {kind for kind in kinds if kind is not None} <= names(UPDATES)


def test_the_page_names_nothing_else() -> None:
    both = definitions("newest", 1).keys() | definitions("newest", 2).keys()
    assert {name for name in names(TYPES) if name[0].isupper()} <= both


def without_limits(schema: Any) -> Any:
    """What a schema says of types and members."""
    if isinstance(schema, list):
        return [without_limits(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: each for name, each in schema.items() if name not in LIMITS and name[:2] != "x-"}
    return {"anyOf" if name == "oneOf" else name: without_limits(kept[name]) for name in kept}


def test_types_without_a_row_are_the_same() -> None:
    of_v1, of_v2 = definitions("newest", 1), definitions("newest", 2)
    defined = {
        name
        for name, schema in [*of_v1.items(), *of_v2.items()]
        if not _MESSAGES.fullmatch(name) and "x-docs-ignore" not in schema
    }
    compared = defined - names(TYPES)
    different = [
        name
        for name in compared
        if name not in of_v1
        or name not in of_v2
        or without_limits(of_v1[name]) != without_limits(of_v2[name])
    ]
    assert len(compared) > 100
    assert different == []


def common_types() -> Iterator[tuple[str, Any, Any]]:
    """The types of both versions, but for messages, with their two schemas."""
    of_v1, of_v2 = definitions("newest", 1), definitions("newest", 2)
    for name in sorted(of_v1.keys() & of_v2.keys()):
        if not _MESSAGES.fullmatch(name):
            yield name, of_v1[name], of_v2[name]


def rows(table: str) -> Iterator[tuple[set[str], list[str]]]:
    """The types that each row names, and its other cells."""
    for row in re.findall(r"^\| (`.*)\|$", table, re.MULTILINE):
        types, *cells = row.split(" | ")
        yield names(types), cells


def of_each_version(table: str) -> set[tuple[str, str, str]]:
    """Type, version and name of all that the second and the third column name."""
    return {
        (type, version, name)
        for types, cells in rows(table)
        for version, cell in zip("12", cells, strict=False)
        for type in types
        for name in re.findall(r"`([^`]+)`", cell)
    }


def differences(
    found: Callable[[Any], set[str]], *, only_both: bool = False
) -> set[tuple[str, str, str]]:
    """Type, version and name of what only one version has; `only_both`: of types of which both
    versions have something."""
    expected = set()
    for type, in_v1, in_v2 in common_types():
        first, second = found(in_v1), found(in_v2)
        if not only_both or (first and second):
            expected |= {(type, "1", each) for each in first - second}
            expected |= {(type, "2", each) for each in second - first}
    return expected


def test_members_that_only_one_version_has_are_on_the_page() -> None:
    expected = differences(lambda schema: {*schema.get("properties", {})}, only_both=True)
    assert of_each_version(MEMBERS) == expected


def test_members_that_have_another_form_are_on_the_page() -> None:
    expected = set()
    for type, in_v1, in_v2 in common_types():
        first, second = (members(schema) for schema in (in_v1, in_v2))
        expected |= {
            (type, name) for name in first.keys() & second.keys() if first[name] != second[name]
        }
    found = [(types, names(first)) for types, (first, *_) in rows(OTHER_FORM)]
    assert {(type, name) for types, named in found for type in types for name in named} == expected


def members(schema: Any) -> dict[str, tuple[Any, bool]]:
    """The form of each member of a type, and whether it is required."""
    required = schema.get("required", ())
    return {
        name: (without_limits(each), name in required)
        for name, each in schema.get("properties", {}).items()
    }


def test_values_that_only_one_version_has_are_on_the_page() -> None:
    expected = {each for each in differences(constants) if each[0] != "SessionUpdate"}
    assert of_each_version(VALUES) == expected


def constants(schema: Any) -> set[str]:
    """The values of an enumeration, or those that select the variants of an object."""
    found = {str(schema["const"])} if "const" in schema else set()
    inner = [each for name in ("oneOf", "anyOf", "allOf") for each in schema.get(name, ())]
    return found.union(*map(constants, [*inner, *schema.get("properties", {}).values()]))
