"""Plans of version 2 for clients of version 1, with and without ids of plans."""

from __future__ import annotations

from proxies.v1_v2.plans import PlansToV1


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
