"""Values that version 1 does not have become the nearest that it has, and are kept."""

from __future__ import annotations

import pytest

from proxies.v1_v2.known_values import know_permission, know_plan, know_tool_call


def kept(**members):
    return {"acp-conductor/original": members}


@pytest.mark.parametrize(
    ("status", "known"),
    [
        ("cancelled", "failed"),
        ("canceled", "failed"),
        ("error", "failed"),
        ("paused", "in_progress"),
    ],
)
def test_a_status_of_a_tool_call_becomes_the_nearest(status, known):
    call = {"status": status, "kind": "teleport", "_meta": {"a": 1}}
    know_tool_call(call)
    meta = {"a": 1, **kept(kind="teleport", status=status)}
    assert call == {"status": known, "kind": "other", "_meta": meta}


@pytest.mark.parametrize(
    ("status", "known"),
    [("cancelled", "completed"), ("failed", "completed"), ("paused", "pending")],
)
def test_a_status_of_an_entry_of_a_plan_becomes_the_nearest(status, known):
    plan = {"entries": [{"status": status, "priority": "low"}]}
    know_plan(plan)
    assert plan == {"entries": [{"status": known, "priority": "low", "_meta": kept(status=status)}]}


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("allow_session_always", "allow_always"),
        ("allow_here", "allow_once"),
        ("reject_always_here", "reject_always"),
        ("new", "reject_once"),
    ],
)
def test_a_kind_of_a_permission_option_that_is_not_known_never_allows_more(kind, known):
    params = {"options": [{"kind": kind}]}
    know_permission(params)
    assert params["options"] == [{"kind": known, "_meta": kept(kind=kind)}]
