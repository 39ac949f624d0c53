"""The capabilities of agents, in both versions of the protocol."""

from __future__ import annotations

from conductor.cli.prompt.conversation import DeclaredCapabilities, declared_capabilities


def test_an_agent_that_declares_nothing_can_do_nothing():
    assert declared_capabilities({"protocolVersion": 1}, 1) == DeclaredCapabilities()
    assert declared_capabilities({"agentCapabilities": ["odd"]}, 1) == DeclaredCapabilities()


def test_the_capabilities_of_version_1():
    declared = {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "sessionCapabilities": {"resume": {}},
    }

    found = declared_capabilities({"agentCapabilities": declared}, 1)

    assert found == DeclaredCapabilities(image=True, embedded_context=True, load=True, resume=True)


def test_in_version_2_sessions_can_always_be_resumed():
    declared = {"session": {"prompt": {"image": {}}}}

    found = declared_capabilities({"capabilities": declared}, 2)

    assert found == DeclaredCapabilities(image=True, resume=True)
