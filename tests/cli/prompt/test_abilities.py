"""The capabilities of agents, in both versions of the protocol."""

from __future__ import annotations

from conductor.cli.prompt.abilities import Abilities, abilities


def test_an_agent_that_declares_nothing_can_do_nothing():
    assert abilities({"protocolVersion": 1}, 1) == Abilities()
    assert abilities({"agentCapabilities": ["odd"]}, 1) == Abilities()


def test_the_capabilities_of_version_1():
    declared = {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "sessionCapabilities": {"resume": {}},
    }

    found = abilities({"agentCapabilities": declared}, 1)

    assert found == Abilities(image=True, embedded_context=True, load=True, resume=True)


def test_in_version_2_sessions_can_always_be_resumed_with_their_history():
    declared = {"session": {"prompt": {"image": {}}}}

    found = abilities({"capabilities": declared}, 2)

    assert found == Abilities(image=True, resume=True, replay=True)
