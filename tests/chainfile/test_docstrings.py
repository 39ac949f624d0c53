"""Descriptions of attributes, read from docstrings."""

from __future__ import annotations

from conductor.chainfile.docstrings import attribute_docstrings, option_docstrings


class Base:
    first: int
    """Of the
    base."""
    second: int = 2
    """Replaced."""


class Derived(Base):
    """Some class.

    Options:
        first     one line
        second    the beginning
                  and its end
                  inner   of a list
    not_an_option  any more
    """

    second: int = 3
    """Of the derived class."""
    third: int = 4
    "another literal"
    x = 1
    """Not annotated."""


def test_strings_below_attributes_are_read_with_those_of_bases() -> None:
    assert attribute_docstrings(Derived) == {
        "first": "Of the base.",
        "second": "Of the derived class.",
        "third": "another literal",
    }


def test_a_class_without_source_has_none() -> None:
    assert attribute_docstrings(type("Made", (), {})) == {}


def test_options_of_a_docstring_end_where_the_indentation_ends() -> None:
    assert option_docstrings(Derived) == {
        "first": "one line",
        "second": "the beginning and its end; `inner`: of a list",
    }


def test_a_docstring_without_options_has_none() -> None:
    assert option_docstrings(Base) == {}
