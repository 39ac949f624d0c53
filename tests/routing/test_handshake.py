"""The step after each reaction to an initialization."""

from __future__ import annotations

import pytest

from conductor.routing.handshake import FailStart, Handshake, SendInit


def unknown(handshake):
    return handshake.answered_with_error(-32601, "Method not found proxy/initialize")


def spent(handshake):
    problem = "Invalid request first ACP proxy request must be `_proxy/initialize`"
    return handshake.answered_with_error(-32600, problem)


def wrong_version(handshake):
    return handshake.answered_with_error(-32600, "Invalid request unsupported protocol version 2")


def broken(handshake):
    return handshake.answered_with_error(-32603, "Internal error")


@pytest.mark.parametrize(
    ("react", "step"),
    [
        (unknown, SendInit()),
        (Handshake.echoed_to_successor, SendInit()),
        (spent, SendInit(in_new_process=True)),
        (Handshake.closed_early, SendInit(in_new_process=True)),
        (wrong_version, None),
        (broken, None),
    ],
)
def test_a_proxy_is_asked_again_in_the_other_dialect(react, step):
    handshake = Handshake("proxy")
    assert handshake.method == "proxy/initialize"

    assert react(handshake) == step
    assert handshake.method == ("proxy/initialize" if step is None else "_proxy/initialize")


@pytest.mark.parametrize(
    "react", [unknown, Handshake.echoed_to_successor, spent, Handshake.closed_early]
)
@pytest.mark.parametrize("given", [True, False])
def test_a_proxy_is_asked_at_most_once_per_dialect(react, given):
    handshake = Handshake("proxy", "_proxy" if given else None)
    if not given:
        unknown(handshake)

    assert isinstance(react(handshake), FailStart)
    assert handshake.method == "_proxy/initialize"


@pytest.mark.parametrize(
    ("react", "fails"),
    [
        (unknown, True),
        (spent, True),
        (Handshake.closed_early, True),
        (wrong_version, False),
        (broken, False),
    ],
)
def test_an_agent_has_one_dialect(react, fails):
    handshake = Handshake("agent")

    assert (handshake.method, handshake.dialect) == ("initialize", None)
    assert isinstance(react(handshake), FailStart) == fails


def test_a_proxy_that_answers_alone_is_not_asked_again():
    reason = Handshake("proxy").answered_alone().reason

    assert "`proxy/initialize` without having initialized its successor" in reason


@pytest.mark.parametrize("role", ["proxy", "agent"])
def test_a_program_that_returns_its_initialize_is_not_asked_again(role):
    handshake = Handshake(role)

    reason = handshake.echoed_to_predecessor(handshake.method).reason

    assert "is it a program that speaks ACP?" in reason


def test_the_error_of_a_components_initialize_is_in_the_failure():
    assert "Method not found proxy/initialize" in unknown(Handshake("agent")).reason
