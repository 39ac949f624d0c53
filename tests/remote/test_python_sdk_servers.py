"""The HTTP and WebSocket clients against the official Python SDK's servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from support.remote_agents import reach, sdk_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["hypercorn", "uvicorn"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """hypercorn is used with HTTP/2 (prior knowledge); uvicorn supports only HTTP/1.1."""
    with sdk_server(f"--{request.param}") as (_, address):
        yield address


@pytest.fixture(params=["ws", "http"])
def url(request: pytest.FixtureRequest, server: str) -> str:
    return f"{request.param}://{server}/acp"


@pytest.mark.parametrize(
    "server", [pytest.param("hypercorn", marks=pytest.mark.fast), "uvicorn"], indirect=True
)
async def test_a_whole_turn_with_questions_arrives_in_order(url):
    async with reach(connect=url) as client:
        answer = await client.initialize()
        session = await client.new_session("/tmp")
        ended = await client.prompt(session, "permission")

        assert answer["agentInfo"]["name"] == "py-agent"
        assert ended == {"stopReason": "end_turn", "_meta": {}}
        kinds = [update["sessionUpdate"] for update in client.transcript.updates(session)]
        assert kinds[-3:] == ["agent_message_chunk", "tool_call", "tool_call_update"]


async def test_a_large_message_arrives_whole(url):
    async with reach(connect=url) as client:
        await client.initialize()
        session = await client.new_session("/tmp")
        await client.prompt(session, "big 3000000")

        assert client.transcript.text(session).endswith("é" * 1_500_000)


async def test_a_turn_is_cancelled_while_its_prompt_is_open(url):
    async with reach(connect=url) as client:
        await client.initialize()
        session = await client.new_session("/tmp")
        answers = []

        async with trio.open_nursery() as nursery:

            async def prompt() -> None:
                answers.append(await client.prompt(session, "wait"))

            nursery.start_soon(prompt)
            while "you said: wait" not in client.transcript.text(session):
                await trio.lowlevel.checkpoint()
            client.cancel(session)

        assert answers == [{"stopReason": "cancelled", "_meta": {}}]


async def test_more_sessions_than_a_connection_of_http2_has_streams_are_open_at_once():
    with sdk_server() as (_, where):
        await _many_sessions(f"http://{where}")


async def _many_sessions(url: str) -> None:
    async with reach(connect=url) as client:
        await client.initialize()
        sessions = [await client.new_session("/tmp") for _ in range(120)]

        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(client.prompt, session, "hello")

        texts = [client.transcript.text(session) for session in sessions]
        assert texts == ["you said: helloHello!"] * 120
