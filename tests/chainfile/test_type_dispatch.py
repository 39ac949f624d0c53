"""The hook that reads a value as a type."""

from __future__ import annotations

from typing import Annotated, Final, NewType

import pytest

from conductor.chainfile.scalars import Seconds
from conductor.chainfile.type_dispatch import Converter
from conductor.chainfile.value_errors import UnsupportedType

Port = NewType("Port", int)


@pytest.fixture
def converter() -> Converter:
    """Reads integers, durations as "duration", and each further type as its name."""
    return Converter(
        [
            (lambda hint: hint is int, lambda hint: int),
            (lambda hint: hint == Seconds, lambda hint: lambda value: "duration"),
            (lambda hint: isinstance(hint, type), lambda hint: lambda value: hint.__name__),
        ]
    )


def test_the_first_rule_that_fits_reads_the_value(converter: Converter) -> None:
    assert converter.structure("12", int) == 12
    assert converter.structure("12", bytes) == "bytes"


@pytest.mark.parametrize("hint", [Port, Final[int], Annotated[int, "a port"], Final[Port]])
def test_names_and_annotations_of_a_type_are_looked_through(
    converter: Converter, hint: object
) -> None:
    assert converter.structure("12", hint) == 12


def test_a_unit_is_a_type_of_its_own(converter: Converter) -> None:
    assert converter.structure("12", Seconds) == "duration"
    assert converter.structure("12", Annotated[Seconds, "more"]) == "duration"


def test_a_hook_is_made_once(converter: Converter) -> None:
    made = []
    converter.rules.insert(0, (lambda hint: hint is float, lambda hint: made.append(hint) or float))

    assert [converter.structure(each, float) for each in ("1", "2")] == [1.0, 2.0]
    assert made == [float]


def test_a_type_without_a_rule_is_named(converter: Converter) -> None:
    with pytest.raises(UnsupportedType, match="a value of type Port cannot be given here"):
        Converter([]).structure("12", Port)
