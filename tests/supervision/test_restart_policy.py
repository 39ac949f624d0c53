"""Restart, bypass or end after a failure, on given times. Pure."""

import pytest

from conductor.chainfile.model import ComponentSpec, RestartBudget
from conductor.supervision.restart_policy import BYPASS, RestartPolicy


def restart_policy(role="proxy", **keys):
    return RestartPolicy.of(ComponentSpec(name="c", run=("c",), **keys), role)


def test_a_failure_counts_as_long_as_the_budget_says():
    budget = restart_policy(restarts=RestartBudget(2, 60.0))
    budget.after_failure(0.0, 0.0)
    budget.after_failure(10.0, 0.0)

    decision = budget.after_failure(60.0, 1.0)

    assert (decision.text, decision.delay) == ("it is restarted (2 of 2)", 0.4)
    assert budget.after_failure(69.9, 0.0) == BYPASS


def test_a_budget_of_zero_is_exhausted():
    assert restart_policy(restarts=RestartBudget(0, 60.0)).after_failure(0.0, 0.0) == BYPASS


def test_a_large_budget_has_finite_delays():
    budget = restart_policy(restarts=RestartBudget(2000, 1e9))

    assert [budget.after_failure(0.0, 1.0) for _ in range(2000)][-1].delay == 10.0


@pytest.mark.parametrize(
    "where", [{"connect": "ws://a.org"}, {"run": ("c",), "ssh": "a.org"}, {"unix": "/run/a.sock"}]
)
def test_remote_components_have_longer_delays_than_programs(where):
    budget = RestartPolicy.of(ComponentSpec(name="c", **where), "agent")

    decisions = [budget.after_failure(float(now), 0.0) for now in range(11)]

    assert [each.action for each in decisions] == ["restart"] * 10 + ["end_chain"]
