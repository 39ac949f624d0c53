"""The generated files are up to date, and importing them is cheap."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conductor.schema import generate
from conductor.schema._definitions import merged
from conductor.schema._items import Class, Union, pascal, snake
from conductor.schema._model import Reader


def test_regeneration_changes_nothing() -> None:
    stale = [p.name for p, text in generate.outputs().items() if p.read_text("utf-8") != text]
    assert stale == []


def test_check_lists_stale_files_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = generate.HERE / "methods.py"
    before = path.read_text("utf-8")
    monkeypatch.setattr(generate, "outputs", lambda: {path: before + "# more\n"})
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: methods.py\n"
    assert path.read_text("utf-8") == before


def test_package_imports_no_types_and_types_import_no_cattrs() -> None:
    code = (
        "import sys, json, conductor.schema as s\n"
        "a = [m for m in sys.modules if m.startswith('conductor.schema.v')]\n"
        "s.params_type('session/prompt', 1)\n"
        "import conductor.schema.convert\n"
        "b = [m for m in ('cattrs', 'conductor.schema.v2', 'trio') if m in sys.modules]\n"
        "print(json.dumps([a, b]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]


def test_two_types_of_one_name_are_an_error() -> None:
    tagged = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
    defs = {
        "OtherU": {"type": "object", "properties": {}},
        "V": {"type": "object", "properties": {}},
        "U": {"oneOf": [{**tagged, "allOf": [{"$ref": "#/$defs/V"}]}]},
    }
    with pytest.raises(ValueError, match="two types are called OtherU"):
        Reader(defs)


def test_definition_used_under_two_tags_gets_a_class_for_each() -> None:
    def variant(tag: str) -> dict[str, object]:
        member = {"sessionUpdate": {"type": "string", "const": tag}}
        return {
            "properties": member,
            "required": ["sessionUpdate"],
            "allOf": [{"$ref": "#/$defs/C"}],
        }

    chunk = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    items = Reader({"C": chunk, "SessionUpdate": {"oneOf": [variant("a_b"), variant("d")]}}).items
    union, made = items["SessionUpdate"], items["AB"]
    assert isinstance(union, Union)
    assert union.variants == {"a_b": "AB", "d": "D"}
    assert isinstance(made, Class)
    assert (made.base, made.written) == ("C", ("sessionUpdate", "a_b"))


def test_members_that_only_the_earlier_state_has_are_kept_and_marked() -> None:
    new = {"A": {"type": "object", "properties": {"x": {"type": "string"}}}}
    old = {
        "A": {"type": "object", "properties": {"y": {"type": "string"}}},
        "B": {"type": "string"},
    }
    defs = merged(new, old)
    assert list(defs["A"]["properties"]) == ["x", "y"]
    assert defs["A"]["properties"]["y"]["x-earlier"]
    assert defs["B"]["x-earlier"]


@pytest.mark.parametrize(
    ("wire", "python"), [("sessionId", "session_id"), ("uri", "uri"), ("rawInputX", "raw_input_x")]
)
def test_field_names_are_the_schemas_in_snake_case(wire: str, python: str) -> None:
    assert snake(wire) == python


def test_class_names_come_from_tag_values() -> None:
    assert pascal("agent_message_chunk") == "AgentMessageChunk"
