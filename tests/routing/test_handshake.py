"""The step after each reaction to an initialization."""

from __future__ import annotations

import pytest

from conductor.routing.handshake import (
    AnsweredAlone,
    AnsweredWithError,
    ClosedEarly,
    EchoedToPredecessor,
    EchoedToSuccessor,
    FailStart,
    Handshake,
    PassAnswerOn,
    SendInit,
)

UNKNOWN = AnsweredWithError(-32601, "Method not found proxy/initialize")
SPENT = AnsweredWithError(
    -32600, "Invalid request first ACP proxy request must be `_proxy/initialize`"
)
VERSION = AnsweredWithError(-32600, "Invalid request unsupported ACP protocol version 2")
BROKEN = AnsweredWithError(-32603, "Internal error")


@pytest.mark.parametrize(
    ("event", "reaction"),
    [
        (UNKNOWN, SendInit("_proxy")),
        (EchoedToSuccessor(), SendInit("_proxy")),
        (SPENT, SendInit("_proxy", in_new_process=True)),
        (ClosedEarly(), SendInit("_proxy", in_new_process=True)),
        (VERSION, PassAnswerOn()),
        (BROKEN, PassAnswerOn()),
    ],
)
def test_a_proxy_is_asked_again_in_the_other_dialect(event, reaction):
    handshake = Handshake("proxy")
    assert handshake.method == "proxy/initialize"

    assert handshake.after(event) == reaction
    assert handshake.method == (
        "_proxy/initialize" if isinstance(reaction, SendInit) else "proxy/initialize"
    )


@pytest.mark.parametrize(
    ("event", "reaction"),
    [
        (UNKNOWN, FailStart),
        (EchoedToSuccessor(), FailStart),
        (SPENT, FailStart),
        (AnsweredAlone(), FailStart),
        (ClosedEarly(), FailStart),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_a_proxy_is_asked_at_most_once_per_dialect(event, reaction, given):
    handshake = Handshake("proxy", "_proxy" if given else None)
    if not given:
        handshake.after(UNKNOWN)

    assert isinstance(handshake.after(event), reaction)
    assert handshake.method == "_proxy/initialize"


@pytest.mark.parametrize(
    ("event", "reaction"),
    [
        (UNKNOWN, FailStart),
        (SPENT, FailStart),
        (VERSION, PassAnswerOn),
        (BROKEN, PassAnswerOn),
        (ClosedEarly(), FailStart),
    ],
)
def test_an_agent_has_one_dialect(event, reaction):
    handshake = Handshake("agent")

    assert (handshake.method, handshake.dialect) == ("initialize", None)
    assert isinstance(handshake.after(event), reaction)


def test_a_proxy_that_answers_alone_is_not_asked_again():
    reaction = Handshake("proxy").after(AnsweredAlone())

    assert isinstance(reaction, FailStart)
    assert "`proxy/initialize` without having initialized its successor" in reaction.reason


@pytest.mark.parametrize("role", ["proxy", "agent"])
def test_a_program_that_returns_its_initialize_is_not_asked_again(role):
    handshake = Handshake(role)

    reaction = handshake.after(EchoedToPredecessor(handshake.method))

    assert isinstance(reaction, FailStart)
    assert "is it a program that speaks ACP?" in reaction.reason


@pytest.mark.parametrize("event", [UNKNOWN, SPENT])
def test_the_error_of_a_components_initialize_is_in_the_failure(event):
    reaction = Handshake("agent").after(event)

    assert isinstance(reaction, FailStart)
    assert event.text in reaction.reason
