"""Content, plans and values that version 1 does not have become the nearest that it has."""

from __future__ import annotations

from proxies.v1_v2.known_values import (
    convert_block,
)
from proxies.v1_v2.to_v1 import PlansToV1, SessionToV1, V1Features

VIDEO = {"type": "video", "uri": "file:///a.mp4", "data": [1]}
SHOWN = {
    "type": "text",
    "text": "file:///a.mp4",
    "_meta": {"acp-conductor/original": VIDEO},
}


def in_call(block):
    return {"type": "content", "content": block}


def test_a_block_of_another_type_is_a_text_in_version_1_and_itself_on_the_way_back():
    assert convert_block(VIDEO, 1) == SHOWN
    assert convert_block(SHOWN, 2) == VIDEO


def test_what_is_kept_for_the_way_back_and_is_no_block_is_not_used():
    block = {**SHOWN, "_meta": {"acp-conductor/original": {"status": "done"}}}
    assert convert_block(block, 2) == block


def test_roles_that_version_1_does_not_have_are_left_out():
    text = {"type": "text", "text": "a"}
    block = {**text, "annotations": {"audience": ["user", "auditor"], "priority": 1}}
    known = {**text, "annotations": {"audience": ["user"], "priority": 1}}
    assert convert_block(block, 1) == known


def test_an_item_of_a_tool_call_of_another_type_is_a_text_in_version_1():
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c"}
    (shown,) = SessionToV1(V1Features()).convert({**update, "content": [VIDEO, in_call(VIDEO)]})
    assert shown["content"] == [in_call(SHOWN)] * 2


def entry(**members):
    return {"content": "look", "priority": "high", "status": "pending", **members}


def plan(id, *entries):
    items = {"type": "items", "planId": id, "entries": list(entries)}
    return {"sessionUpdate": "plan_update", "plan": items}


def removed(id):
    return {"sessionUpdate": "plan_removed", "planId": id}


def test_only_the_removal_of_the_plan_that_is_shown_clears_it():
    plans = PlansToV1(knows_ids=False)
    assert plans.update(plan("a", entry())) == [{"sessionUpdate": "plan", "entries": [entry()]}]

    assert plans.removed(removed("b")) == []
    assert plans.removed(removed("a")) == [{"sessionUpdate": "plan", "entries": []}]


def test_a_client_that_knows_ids_gets_all_plans_but_the_main_one_as_they_are():
    plans = PlansToV1(knows_ids=True)
    assert plans.update(plan("a", entry())) == [plan("a", entry())]
    assert plans.update(plan("main", entry())) == [{"sessionUpdate": "plan", "entries": [entry()]}]

    assert plans.removed(removed("a")) == [removed("a")]
    assert plans.removed(removed("main")) == [{"sessionUpdate": "plan", "entries": []}]


def test_values_that_version_1_does_not_have_are_the_nearest():
    entries = [entry(status="cancelled"), entry(status="new", priority="new")]
    (shown,) = PlansToV1(knows_ids=False).update(plan("a", *entries))

    assert shown["entries"] == [
        entry(content="look (cancelled)", status="completed"),
        entry(status="pending", priority="medium"),
    ]
