from __future__ import annotations

import pytest

from conductor.acp.sessions import UsageDelta, UsageMeter


def usage(**counts):
    return {"totalTokens": sum(counts.values()), **counts}


def cost(amount, currency="USD"):
    cost = {"amount": amount, "currency": currency}
    return {"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": cost}


def test_the_tokens_of_turns_are_added_up():
    meter = UsageMeter("turn")

    assert meter.turn(usage(inputTokens=3, outputTokens=2)) == UsageDelta(turns=1, tokens=5)
    assert meter.turn(usage(inputTokens=4, thoughtTokens=1)) == UsageDelta(turns=1, tokens=5)
    expected = {"inputTokens": 7, "outputTokens": 2, "thoughtTokens": 1, "totalTokens": 10}
    assert (meter.turns, meter.tokens) == (2, expected)


def test_the_tokens_of_a_session_replace_each_other():
    meter = UsageMeter("session")

    assert meter.turn(usage(inputTokens=3)) == UsageDelta(turns=1, tokens=3)
    assert meter.turn(usage(inputTokens=8)) == UsageDelta(turns=1, tokens=5)
    assert meter.turn(usage(inputTokens=1)) == UsageDelta(turns=1)
    assert meter.tokens == {"inputTokens": 1, "totalTokens": 1}


def test_a_turn_that_reports_nothing_is_a_turn():
    assert UsageMeter().turn(None) == UsageDelta(turns=1)
    assert UsageMeter().turn({}) == UsageDelta(turns=1)


def test_cost_is_cumulative_per_session():
    meter = UsageMeter()

    assert meter.update(cost(1.5)) == UsageDelta(cost={"USD": 1.5})
    assert meter.update(cost(2.0)) == UsageDelta(cost={"USD": 0.5})
    assert meter.update(cost(1, "EUR")) == UsageDelta(cost={"EUR": 1.0})
    assert meter.update({**cost(0), "cost": None}) == UsageDelta()
    assert (meter.cost, meter.used, meter.size) == ({"USD": 2.0, "EUR": 1.0}, 10, 100)


def test_earlier_cost_of_a_loaded_session_is_not_counted():
    meter = UsageMeter(restored=True)

    assert meter.update(cost(3.0)) == UsageDelta(cost={"USD": 0.0})
    assert meter.update(cost(4.0)) == UsageDelta(cost={"USD": 1.0})
    restored = UsageMeter("session", restored=True)
    assert restored.turn(usage(inputTokens=9)) == UsageDelta(turns=1)
    assert restored.turn(usage(inputTokens=10)) == UsageDelta(turns=1, tokens=1)


@pytest.mark.parametrize("odd", [{"amount": "1"}, "1", 3])
def test_a_cost_that_is_none_is_ignored(odd):
    assert UsageMeter().update({"sessionUpdate": "usage_update", "cost": odd}) == UsageDelta()
