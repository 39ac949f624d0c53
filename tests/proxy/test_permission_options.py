from __future__ import annotations

import pytest

from conductor.proxy.permission_options import choose_option, offers_answers, offers_mode

ONCE = {"optionId": "1", "name": "Allow", "kind": "allow_once"}
ALWAYS = {"optionId": "2", "name": "Always allow", "kind": "allow_always"}
REJECT = {"optionId": "3", "name": "Reject", "kind": "reject_once"}
NEVER = {"optionId": "4", "name": "Never", "kind": "reject_always"}
SMART = "Switch to smart mode"
PLAIN_NAMES = ("Yes, proceed", "Yes, just this once", "Run `ls --all`", 'Fetch "all modes"')
FOR_MORE = ("Allow for this session", "Always", "Yes, and don't ask again", "Allow every command")
FOR_ALL = (SMART, "Yes, and use auto mode", "YOLO", "Bypass permissions", "Allow all edits")


def named(name, kind="allow_once", id="5"):
    return {"optionId": id, "name": name, "kind": kind}


@pytest.mark.parametrize(
    ("answer", "options", "chosen"),
    [
        ("allow_once", [NEVER, ALWAYS, ONCE], "1"),
        ("allow_once", [ALWAYS, REJECT], None),
        ("allow_always", [ONCE, ALWAYS, REJECT], "2"),
        ("allow_always", [ONCE, REJECT], "1"),
        ("allow_always", [ALWAYS, named("Allow x", "allow_always"), ONCE, REJECT], "1"),
        ("allow_once", [ONCE, named("Allow it"), REJECT], None),  # answers to a question
        ("allow_once", [ONCE], None),  # the same: none rejects
        ("allow_always", [ALWAYS], None),
        ("deny", [REJECT, named("No", "reject_once")], "3"),
        ("deny", [named("No, use plan mode", "reject_once"), REJECT], "3"),
        ("deny", [named("No, use plan mode", "reject_once")], "5"),
        ("deny", [ONCE, NEVER, REJECT], "3"),
        ("deny", [ONCE, NEVER], "4"),
        ("deny", [ONCE], None),
    ],
)
def test_an_answer_chooses_the_option_that_allows_no_more(answer, options, chosen):
    assert choose_option(answer, options) == chosen


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_the_only_option_that_allows_once_is_chosen(name):
    assert choose_option("allow_once", [named(name), ALWAYS, REJECT]) == "5"


@pytest.mark.parametrize("name", FOR_MORE + FOR_ALL)
def test_an_option_that_speaks_of_more_than_once_is_not(name):
    assert choose_option("allow_once", [named(name), REJECT]) is None


@pytest.mark.parametrize("name", FOR_ALL)
def test_an_option_that_speaks_of_a_mode_is_not_allowed_always(name):
    assert choose_option("allow_always", [named(name, "allow_always"), ONCE, REJECT]) == "1"
    assert choose_option("allow_always", [named(name, "allow_always"), REJECT]) is None


def test_a_mode_beside_a_tool_that_is_known_for_sure_is_passed_over():
    options = [named(SMART), ONCE, REJECT]

    assert choose_option("allow_once", options) is None
    assert choose_option("allow_once", options, is_tool=True) == "1"
    assert choose_option("allow_once", [*options, named("Other", id="6")], is_tool=True) is None


def test_an_option_whose_id_another_kind_has_is_not_chosen():
    same = [{"optionId": "x", "kind": kind} for kind in ("allow_once", "allow_always")]
    denied = {"optionId": "x", "kind": "reject_once"}

    assert choose_option("allow_once", [*same, REJECT]) is None
    assert choose_option("allow_once", [same[0], same[0], REJECT]) == "x"
    assert choose_option("deny", [same[0], denied]) is None
    assert choose_option("deny", [same[0], denied, NEVER]) == "4"


@pytest.mark.parametrize("id", [None, 1, {"a": 1}, ["1"]])
def test_an_option_without_an_id_is_not_chosen(id):
    assert choose_option("allow_once", [{"optionId": id, "kind": "allow_once"}, REJECT]) is None


@pytest.mark.parametrize(
    ("options", "answers", "mode"),
    [
        ([ONCE, ALWAYS, REJECT], False, False),
        ([ONCE, ALWAYS, named("For all modes", "allow_always"), REJECT, NEVER], False, False),
        ([ONCE, REJECT, named("Deny, and tell what to do", "reject_once")], False, False),
        ([named("Red", id="0"), named("Blue", id="1"), REJECT], True, False),
        ([named("OK")], True, False),
        ([], True, False),
        ([named(SMART), ONCE, REJECT], True, True),
        ([named("Yes, enter plan mode"), REJECT], False, True),
    ],
)
def test_the_shape_of_the_options_tells_questions_and_modes(options, answers, mode):
    assert (offers_answers(options), offers_mode(options)) == (answers, mode)
