"""docs/adapters-v1-v2.md has each method, update, type and different member of both schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.schema_strategies import definitions

from conductor.schema import METHODS_BY_VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "adapters-v1-v2.md").read_text()
METHODS, UPDATES, MEMBERS, TYPES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
TYPES, SAME = TYPES.split("Types that are the same in both versions")
_MESSAGES = re.compile(r"(Agent|Client|Proxy)(Request|Response|Notification)")
LIMITS = {
    *("description", "title", "format", "default", "examples"),
    *("minimum", "maximum", "minItems", "minLength", "pattern"),
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


@pytest.mark.parametrize("version", [1, 2])
def test_each_type_has_a_row(version: int) -> None:
    defined = {
        name
        for name, schema in definitions("newest", version).items()
        if not _MESSAGES.fullmatch(name) and "x-docs-ignore" not in schema
    }
    assert defined <= names(TYPES + SAME)


def test_the_page_names_nothing_else() -> None:
    both = definitions("newest", 1).keys() | definitions("newest", 2).keys()
    assert {name for name in names(TYPES + SAME) if name[0].isupper()} <= both


def without_limits(schema: Any) -> Any:
    """What a schema says of types and members."""
    if isinstance(schema, list):
        return [without_limits(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: each for name, each in schema.items() if name not in LIMITS and name[:2] != "x-"}
    return {"anyOf" if name == "oneOf" else name: without_limits(kept[name]) for name in kept}


def test_types_that_the_page_calls_the_same_are_the_same() -> None:
    of_v1, of_v2 = definitions("newest", 1), definitions("newest", 2)
    compared = {name for name in names(SAME) if not _MESSAGES.fullmatch(name)}
    different = [
        name for name in compared if without_limits(of_v1[name]) != without_limits(of_v2[name])
    ]
    assert len(compared) > 100
    assert different == []


def test_members_that_only_one_version_has_are_on_the_page() -> None:
    of_v1, of_v2 = definitions("newest", 1), definitions("newest", 2)
    expected = set()
    for name in of_v1.keys() & of_v2.keys():
        first, second = (of[name].get("properties", {}).keys() for of in (of_v1, of_v2))
        if first and second:
            expected |= {(name, "1", each) for each in first - second}
            expected |= {(name, "2", each) for each in second - first}
    found = set()
    for row in re.findall(r"^\| (`.*)\|$", MEMBERS, re.MULTILINE):
        types, *cells = row.split(" | ")
        for version, cell in zip("12", cells, strict=False):
            found |= {(name, version, each) for name in names(types) for each in names(cell)}
    assert found == expected
