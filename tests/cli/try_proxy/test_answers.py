"""The answers of the client of `try`."""

from __future__ import annotations

import pytest

from conductor.cli.try_proxy.run import answer_permission, answer_question

OPTIONS = [
    {"optionId": "never", "kind": "reject_always"},
    {"optionId": "once", "kind": "allow_once"},
    {"optionId": "always", "kind": "allow_always"},
]


def test_the_first_option_that_fits_is_selected():
    allowed = answer_permission({"options": OPTIONS}, allows=True)
    denied = answer_permission({"options": OPTIONS}, allows=False)

    assert allowed == {"outcome": {"outcome": "selected", "optionId": "once"}}
    assert denied == {"outcome": {"outcome": "selected", "optionId": "never"}}


def test_without_a_fitting_option_the_request_is_cancelled():
    assert answer_permission({"options": OPTIONS[1:]}, allows=False) == {
        "outcome": {"outcome": "cancelled"}
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "default": ""}, ""),
        ({"type": "string", "enum": ["a", "b"]}, "a"),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "x"),
        ({"type": "string", "format": "email"}, "user@example.org"),
        ({"type": "string", "format": "unknown"}, "text"),
        ({"type": "integer"}, 1),
        ({"type": "number", "minimum": 2.5}, 2.5),
        ({"type": "boolean"}, True),
        ({"type": "boolean", "default": False}, False),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, []),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "minItems": 1},
            ["a"],
        ),
    ],
)
def test_a_required_field_gets_a_value(field, value):
    schema = {"type": "object", "properties": {"it": field}, "required": ["it"]}
    answer = answer_question({"mode": "form", "requestedSchema": schema}, accepts=True)

    assert answer == {"action": "accept", "content": {"it": value}}


def test_an_optional_field_gets_its_default_only():
    fields = {"a": {"type": "string"}, "b": {"type": "integer", "default": 7}}
    schema = {"type": "object", "properties": fields}

    assert answer_question({"requestedSchema": schema}, accepts=True)["content"] == {"b": 7}


def test_a_page_is_opened_without_values_and_a_question_is_declined():
    assert answer_question({"mode": "url", "url": "https://x"}, accepts=True) == {
        "action": "accept"
    }
    assert answer_question({"mode": "form"}, accepts=False) == {"action": "decline"}
