from __future__ import annotations

import pytest

from proxies.elicitation.forms import answer, choices, explained, shown, titled, why_not_asked

PORT = {"type": "integer", "minimum": 1024, "maximum": 65535}
COLOURS = {"type": "array", "minItems": 1, "maxItems": 2, "items": {"enum": ["Red", "Green"]}}
SHADES = {
    "type": "array",
    "items": {"anyOf": [{"const": "red, dark"}, {"const": "g", "title": "Green"}]},
}
PLANS = [{"const": "a", "title": "Plan A"}, {"const": "b", "title": "Plan B"}]


def form(required=(), **fields):
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"mode": "form", "message": "How?", "requestedSchema": schema}


def results(params):
    return {each.name: each.result for each in choices(params)}


def accepted(**content):
    return {"action": "accept", "content": content}


DECLINED = {"action": "decline"}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (form(x={"type": "boolean"}), {"Yes": accepted(x=True), "No": accepted(x=False)}),
        (form(x={"type": "string", "enum": ["1", "2"]}), {n: accepted(x=n) for n in "12"}),
        (
            form(x={"type": "string", "oneOf": PLANS}),
            {"Plan A": accepted(x="a"), "Plan B": accepted(x="b")},
        ),
        (form(), {"Accept": accepted()}),
        ({"mode": "url", "url": "https://a.example"}, {"Opened": {"action": "accept"}}),
    ],
)
def test_a_single_choice_has_an_option_for_each_value_and_one_to_decline(params, expected):
    assert results(params) == {**expected, "Decline": DECLINED}


DELETE = {"type": "boolean", "title": "Delete all files?", "description": "For good."}


@pytest.mark.parametrize(
    ("params", "title"),
    [
        (form(x={"type": "boolean"}), "How?"),
        (form(x=DELETE), "How? Delete all files? For good."),
        (
            {**form(x=DELETE), "message": "Please confirm"},
            "Please confirm: Delete all files? For good.",
        ),
        (
            {**form(x={**DELETE, "description": "How?"}), "message": "How?"},
            "How? Delete all files?",
        ),
        (
            {"mode": "form", "message": "A", "requestedSchema": {"title": "B", "description": "C"}},
            "A: B: C",
        ),
        (
            {"mode": "url", "message": "Log in", "url": "https://a.example"},
            "Log in https://a.example",
        ),
        ({"mode": "url", "url": "https://a.example"}, "https://a.example"),
    ],
)
def test_the_title_has_all_that_is_asked(params, title):
    assert titled(params) == title


def test_what_a_value_means_is_shown():
    plans = [{"const": "a", "title": "Plan A", "description": "Now."}, {"const": "b"}]
    params = form(x={"type": "string", "oneOf": plans}, y={"type": "string"})
    params["requestedSchema"]["title"] = "Plans"

    assert explained(params) == "- Plan A: Now."
    assert shown(params).startswith(
        "How?\n\nPlans\n\n- `x`: one of: Plan A, b; optional\n  - Plan A: Now.\n- `y`"
    )


def test_to_answer_no_is_not_to_reject():
    yes_or_no = choices(form(x={"type": "boolean"}))

    assert {each.name: each.kind for each in yes_or_no} == {
        "Yes": "allow_once",
        "No": "allow_once",
        "Decline": "reject_once",
    }


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (form(x={"type": "boolean"}), {"allow_once": "Yes", "reject_once": "No"}),
        (form(), {"allow_once": "Accept", "reject_once": "Decline"}),
        (
            form(x={"type": "string", "enum": ["only"]}),
            {"allow_once": "only", "reject_once": "Decline"},
        ),
        (
            {"mode": "url", "url": "https://a.example"},
            {"allow_once": "Opened", "reject_once": "Decline"},
        ),
        (form(x={"type": "string", "enum": ["1", "2"]}), None),
    ],
)
def test_by_kind_there_is_one_option_of_each_kind(params, expected):
    found = choices(params, by_kind=True)

    assert (found and {each.kind: each.name for each in found}) == expected
    assert len(found or ()) == len(expected or ())


@pytest.mark.parametrize(
    "params",
    [
        form(x={"type": "string"}),
        form(x=PORT),
        form(x=COLOURS),
        form(x={"type": "boolean"}, y={"type": "boolean"}),
        form(x={"type": "string", "enum": [str(number) for number in range(10)]}),
    ],
)
def test_any_other_form_is_no_choice(params):
    assert choices(params) is None


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ({"type": "string"}, " a: b\nc ", "a: b\nc"),
        ({"type": "string", "oneOf": PLANS}, "plan b", "b"),
        ({"type": "string", "enum": ["a", "A"]}, "A", "A"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "off", False),
        (PORT, "8080", 8080),
        ({"type": "number"}, "1.5", 1.5),
        (COLOURS, "green, Red, green", ["Green", "Red"]),
        (SHADES, "red,dark, green", ["red, dark", "g"]),
        (SHADES, "G", ["g"]),
    ],
)
def test_one_field_is_the_whole_answer(field, text, value):
    assert answer(form(x=field), text) == accepted(x=value)


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ({"type": "boolean"}, "maybe", "write yes or no"),
        (PORT, "80", "at least 1024"),
        (PORT, "99999", "at most 65535"),
        (PORT, "8.5", "a whole number"),
        ({"type": "integer"}, "-" + "9" * 20, "a smaller number"),
        ({"type": "number"}, "9" * 400, "a smaller number"),
        ({"type": "number"}, "nan", "a smaller number"),
        ({"type": "number"}, "x", "write a number"),
        ({"type": "string", "enum": ["a"]}, "b", "'b' is none of: a"),
        ({"type": "string", "minLength": 3}, "ab", "at least 3"),
        (COLOURS, "", "at least 1"),
        (COLOURS, "Blue", "none of: Red, Green"),
        (SHADES, "red", "'red' is none of: `red, dark`, `Green`"),
    ],
)
def test_an_answer_that_does_not_fit_says_why(field, text, problem):
    with pytest.raises(ValueError, match=problem):
        answer(form(x=field), text)


SEVERAL = form(
    ["name"],
    name={"type": "string", "title": "Project Name"},
    port={**PORT, "default": 3000},
    logs={"type": "boolean"},
)


def test_several_fields_are_lines_by_name_or_title():
    assert answer(SEVERAL, "project name: x\n\n- Logs: no") == accepted(
        name="x", port=3000, logs=False
    )


def test_a_name_or_a_title_may_have_a_colon():
    params = form(a={"type": "string", "title": "Note: why?"}, b={"type": "string"})

    assert answer(params, "Note: why?: it is: late\nb: c: d") == accepted(a="it is: late", b="c: d")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("port: 4000", "`name` is missing"), ("hello", "no field in the line 'hello'")],
)
def test_lines_that_do_not_fit_say_why(text, problem):
    with pytest.raises(ValueError, match=problem):
        answer(SEVERAL, text)


def test_the_word_decline_declines():
    assert answer(SEVERAL, " Decline ") == DECLINED


def test_the_text_says_what_to_write():
    assert shown(SEVERAL) == (
        "How?\n\n"
        "- `name`: Project Name\n"
        "- `port`: a number; without a line: 3000\n"
        "- `logs`: yes or no; optional\n\n"
        "Your next message is the answer, one line for each field, as `name: value`. "
        "Write `decline` to give none."
    )
    defaults = form(
        x={**SHADES, "default": ["red, dark", "g"]}, y={"type": "boolean", "default": False}
    )
    assert "without a line: red, dark, Green\n" in shown(defaults)
    assert "- `y`: yes or no; without a line: no\n" in shown(defaults)
    assert "- `x`: any of, with commas: Red, Green\n" in shown(form(["x"], x=COLOURS))


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "_other"},
        form(x={"type": "_colour"}),
        form(x={"type": "array"}),
    ],
)
def test_what_is_no_form_of_the_protocol_is_not_asked(params):
    assert why_not_asked(params) is not None
