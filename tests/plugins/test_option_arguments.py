"""Options given as arguments: their types decide which texts are JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest

from conductor.plugins.loading import option_of_argument
from conductor.proxy import Proxy


@attrs.define
class Inner:
    word: str


@attrs.define
class Options(Proxy):
    note: str = ""
    maybe: str | None = None
    path: Path | None = None
    anything: Any = None
    marked: Annotated[str, "a text"] = ""
    names: list[str] = attrs.field(factory=list)
    table: dict[str, int] | None = None
    inner: Inner | None = None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("names", '["a", "b"]', ["a", "b"]),
        ("table", '{"a": 1}', {"a": 1}),
        ("inner", '{"word": "uno"}', {"word": "uno"}),
        ("names", "a", "a"),  # making the instance says what is wrong
        ("note", "[draft] a", "[draft] a"),
        ("maybe", "{x}", "{x}"),
        ("path", "[a].txt", "[a].txt"),
        ("anything", "[a", "[a"),
        ("marked", "[a", "[a"),
        ("unknown", "[a", "[a"),
    ],
)
def test_lists_and_mappings_are_json_and_texts_are_not(name, text, value):
    assert option_of_argument(Options, name, text) == value


def test_what_is_not_json_is_an_error_that_names_the_option():
    with pytest.raises(ValueError, match=r'names: not valid JSON, such as `\["a", "b"\]`'):
        option_of_argument(Options, "names", "[a, b]")


def test_a_class_without_options_gets_the_text():
    class Plain(Proxy):
        """Not made with attrs."""

    assert option_of_argument(Plain, "names", "[]") == "[]"
