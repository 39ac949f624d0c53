"""docs/adapters-v1-v2.md has each method, update and type of both schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.schema_strategies import definitions

from conductor.schema import METHODS_BY_VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "adapters-v1-v2.md").read_text()
METHODS, UPDATES, TYPES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
_MESSAGES = re.compile(r"(Agent|Client|Proxy)(Request|Response|Notification)")


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
    assert defined <= names(TYPES)


def test_the_page_names_nothing_else() -> None:
    both = definitions("newest", 1).keys() | definitions("newest", 2).keys()
    assert {name for name in names(TYPES) if name[0].isupper()} <= both
