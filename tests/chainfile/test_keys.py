"""A mapping as the values of declared keys: every mistake is found, each once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from conductor.chainfile.converter import make_converter
from conductor.chainfile.keys import read_struct
from conductor.chainfile.value_errors import INVALID, InvalidValue, invalid


def _even(_: Any, __: Any, value: int) -> None:
    if value % 2:
        raise invalid("must be even")


def _above_low(item: dict[str, Any], _: Any, value: int) -> None:
    if item.get("low", INVALID) is not INVALID and value <= item["low"]:
        raise invalid("must be above `low`")


class Item(msgspec.Struct, frozen=True, kw_only=True, rename={"options": "with"}):
    low: Annotated[int, _even] = 1
    high: Annotated[int, _above_low] = 3
    options: dict[str, str] = {}


def read(data: Any) -> Any:
    return read_struct(data, Item, make_converter("/", "key"), {"opts": "did you mean `with`?"})


def mistakes(data: Any) -> list[tuple[Any, str]]:
    with pytest.raises(InvalidValue) as caught:
        read(data)
    return [(issue.path, issue.message) for issue in caught.value.found]


def test_keys_are_read_by_the_types_of_their_fields() -> None:
    assert read({"low": "2", "with": {"a": "b"}}) == {"low": 2, "options": {"a": "b"}}


def test_validators_are_only_asked_about_keys_that_are_given() -> None:
    assert read({}) == {}


def test_every_mistake_is_reported() -> None:
    assert mistakes({"low": "3", "with": "x", "hihg": "1"}) == [
        (("with",), "expected a mapping"),
        (("hihg",), "unknown key `hihg`"),
        (("low",), "must be even"),
    ]


def test_a_validator_sees_the_other_keys() -> None:
    assert mistakes({"low": "4", "high": "4"}) == [(("high",), "must be above `low`")]


def test_a_validator_sees_which_keys_could_not_be_read() -> None:
    assert [path for path, _ in mistakes({"low": "x", "high": "4"})] == [("low",)]


def test_an_unknown_key_has_the_help_that_is_given_for_it() -> None:
    with pytest.raises(InvalidValue) as caught:
        read({"opts": {}})

    (issue,) = caught.value.found
    assert issue.help == "did you mean `with`?"


def test_only_a_mapping_is_read() -> None:
    assert mistakes("x") == [((), "expected a mapping")]
