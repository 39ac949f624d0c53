"""Restart, bypass or end after a failure, on given times. Pure."""

import pytest

from conductor.chainfile.model import ComponentSpec, RestartBudget
from conductor.supervision.restart_policy import Bypass, EndChain, Restart, RestartPolicy


def restart_policy(role="proxy", **keys):
    return RestartPolicy.of(ComponentSpec(name="c", run=("c",), **keys), role)


@pytest.mark.parametrize("role", ["proxy", "agent"])
def test_a_process_is_restarted_unless_told_otherwise(role):
    assert isinstance(restart_policy(role).after_failure(0.0, 0.0), Restart)


def test_each_restart_waits_longer_than_the_one_before_up_to_a_limit():
    waits = restart_policy(restarts=RestartBudget(6, 60.0))

    delays = [waits.after_failure(0.0, 1.0).delay for _ in range(6)]

    assert delays == pytest.approx([0.1, 0.4, 1.6, 6.4, 10.0, 10.0])


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 0.05), (0.5, 0.075), (1.0, 0.1)])
def test_jitter_takes_away_up_to_a_half(jitter, delay):
    assert restart_policy().after_failure(0.0, jitter).delay == pytest.approx(delay)


def test_a_decision_says_which_attempt_it_is():
    budget = restart_policy(restarts=RestartBudget(2, 60.0))

    decisions = [str(budget.after_failure(float(now), 0.0)) for now in range(3)]

    assert decisions == [
        "it is restarted (1 of 2)",
        "it is restarted (2 of 2)",
        "the chain goes on without it",
    ]


def test_a_failure_counts_as_long_as_the_budget_says():
    budget = restart_policy(restarts=RestartBudget(2, 60.0))
    budget.after_failure(0.0, 0.0)
    budget.after_failure(10.0, 0.0)

    decision = budget.after_failure(60.0, 1.0)

    assert decision == Restart(delay=0.4, number=2, of=2)
    assert budget.after_failure(69.9, 0.0) == Bypass()


def test_a_component_that_failed_long_ago_starts_again_at_once():
    budget = restart_policy()
    for now in (0.0, 1.0, 2.0):
        budget.after_failure(now, 1.0)

    assert budget.after_failure(100.0, 1.0) == Restart(delay=0.1, number=1, of=3)


def test_a_budget_of_zero_is_exhausted():
    assert restart_policy(restarts=RestartBudget(0, 60.0)).after_failure(0.0, 0.0) == Bypass()


def test_a_large_budget_has_finite_delays():
    budget = restart_policy(restarts=RestartBudget(2000, 1e9))

    assert [budget.after_failure(0.0, 1.0) for _ in range(2000)][-1].delay == 10.0


@pytest.mark.parametrize("on_failure", ["restart", "bypass"])
@pytest.mark.parametrize(("role", "required"), [("agent", False), ("proxy", True)])
def test_a_required_component_is_never_bypassed(on_failure, role, required):
    never = restart_policy(
        role, on_failure=on_failure, required=required, restarts=RestartBudget(0, 1.0)
    )

    assert never.after_failure(0.0, 0.0) == EndChain()


@pytest.mark.parametrize(
    ("on_failure", "decision"), [("bypass", Bypass()), ("end_chain", EndChain())]
)
def test_other_policies_do_not_restart(on_failure, decision):
    assert restart_policy(on_failure=on_failure).after_failure(0.0, 0.0) == decision


@pytest.mark.parametrize(
    "where", [{"connect": "ws://a.org"}, {"run": ("c",), "ssh": "a.org"}, {"unix": "/run/a.sock"}]
)
def test_remote_components_have_longer_delays_than_programs(where):
    budget = RestartPolicy.of(ComponentSpec(name="c", **where), "agent")

    decisions = [budget.after_failure(float(now), 0.0) for now in range(11)]

    assert [type(each) for each in decisions] == [Restart] * 10 + [EndChain]
