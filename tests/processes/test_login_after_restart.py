"""A restarted agent that has kept its login in its process only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.errors import RequestError
from conductor.testing import FakeAgent, open_chain
from proxies.redact import Redact
from proxies.usage import Usage

AGENT = Path(__file__).parents[1] / "support" / "components" / "relogin_agent.py"
CHAIN = ChainFile(
    path="c.yaml", name="c", agent=ComponentSpec("it", run=(sys.executable, str(AGENT)))
)


async def prompt_after_restart(login: dict[str, Any], *after: str) -> Any:
    """The answer to a prompt after the agent has died, once it was logged in with these params."""
    async with attach_file(Client, CHAIN) as attached:
        client = attached.client
        await client.initialize()
        await client.request("authenticate", login)
        session = await client.new_session("/")
        for method in after:
            await client.request(method, {})
        with pytest.raises(RequestError):
            await client.request("session/prompt", prompt(session, "die"))
        return await client.request("session/prompt", prompt(session, "go on"))


def prompt(session: str, text: str) -> dict[str, Any]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    ("login", "after"), [({"methodId": "browser"}, ()), ({"methodId": "key"}, ("logout",))]
)
async def test_else_the_user_is_told_to_log_in_again(login, after):
    with pytest.raises(RequestError) as caught:
        await prompt_after_restart(login, *after)

    assert caught.value.code == -32000
    assert caught.value.message == (
        "it was restarted and has lost its login: log in again, then load this session, or start "
        "a new one"
    )


async def test_a_new_session_says_why_the_agent_requires_a_login_again():
    async with attach_file(Client, CHAIN) as attached:
        client = attached.client
        await client.initialize()
        with pytest.raises(RequestError) as before:
            await client.new_session("/")
        await client.request("authenticate", {"methodId": "browser"})
        session = await client.new_session("/")
        with pytest.raises(RequestError):
            await client.request("session/prompt", prompt(session, "die"))
        with pytest.raises(RequestError) as after:
            await client.new_session("/")
        await client.request("authenticate", {"methodId": "browser"})
        await client.new_session("/")
        await client.request("logout", {})
        with pytest.raises(RequestError) as logged_out:
            await client.new_session("/")

    assert before.value.message == logged_out.value.message == "Authentication required"
    assert (after.value.code, after.value.message) == (
        -32000,
        "Authentication required: it was restarted and has lost its login: log in again",
    )


@pytest.mark.fast
async def test_logins_their_state_and_its_changes_pass_the_chain():
    """`auth/status` and `auth/status_update` with the states of the schema."""
    states = [
        {"state": "unauthenticated"},
        {"state": "authenticated", "accounts": [{"label": "Max"}]},
    ]
    agent = FakeAgent()

    def log_in(params):
        agent.endpoint.notify("auth/status_update", states[1])
        return {"_meta": {"kept": params["methodId"]}}

    agent.handlers["auth/status"] = lambda params: states[0]
    agent.handlers |= {"authenticate": log_in, "logout": lambda params: {}}
    async with open_chain(Usage(), Redact(), agent) as client:
        await client.initialize()
        assert await client.request("auth/status", {}) == states[0]
        login = await client.request("authenticate", {"methodId": "browser"})
        assert login == {"_meta": {"kept": "browser"}}
        assert await client.request("logout", {}) == {}
        (told,) = client.transcript.of("auth/status_update")

    assert told.params == states[1]
