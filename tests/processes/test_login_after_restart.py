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

AGENT = Path(__file__).parents[1] / "support" / "components" / "relogin_agent.py"
CHAIN = ChainFile("c.yaml", "c", (), ComponentSpec("it", run=(sys.executable, str(AGENT))))


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
    "login", [{"methodId": "key"}, {"methodId": "browser", "_meta": {"api-key": "k"}}]
)
async def test_a_login_that_needs_nothing_of_the_user_is_repeated(login):
    assert await prompt_after_restart(login) == {"stopReason": "end_turn"}


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
