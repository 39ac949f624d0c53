"""Errors for remote components that are unreachable or have disconnected, and their delay."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from support.remote_agents import reach, sdk_server

from conductor.chainfile.model import RestartBudget
from conductor.errors import RequestError

SCHEMES = pytest.mark.parametrize("scheme", ["ws", "http"])


@asynccontextmanager
async def listener(
    handle: Callable[[trio.SocketStream], object],
) -> AsyncIterator[str]:
    """A TCP server in this process, and where it is."""
    async with trio.open_nursery() as nursery:
        (server,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [server])
        yield f"127.0.0.1:{server.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def answering(answer: bytes) -> Callable[[trio.SocketStream], object]:
    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    return handle


async def why_it_does_not_start(**agent: object) -> RequestError:
    async with reach(**agent) as client:
        with pytest.raises(RequestError) as caught:
            await client.initialize()
    return caught.value


@SCHEMES
async def test_connection_refused_is_explained(scheme):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    error = await why_it_does_not_start(connect=f"{scheme}://127.0.0.1:{port}/acp?token=hidden1")

    where = f"{scheme}://127.0.0.1:{port}/acp"
    reason = f"it could not be reached at {where}: connection refused: is it running there?"
    assert error.data == {"component": "far", "reason": reason}
    assert error.message == f"component 'far' did not start: {reason}"


@SCHEMES
async def test_the_name_of_the_host_is_not_known(scheme):
    error = await why_it_does_not_start(connect=f"{scheme}://no-such-host.invalid")

    assert "the name of the host is not known" in error.message


@SCHEMES
async def test_status_401_is_explained(scheme):
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 15\r\n\r\nwho is hidden2?"
    async with listener(answering(answer)) as where:
        error = await why_it_does_not_start(
            connect=f"{scheme}://{where}", headers={"Authorization": "Bearer hidden2"}
        )

    assert error.data["reason"] == (
        f"it was refused at {scheme}://{where}/acp: 401 Unauthorized (who is ***?); "
        "the token, or the user, is not valid there"
    )
    assert "hidden2" not in str(error.data)


@SCHEMES
async def test_a_missing_token_is_explained(scheme):
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    async with listener(answering(answer)) as where:
        error = await why_it_does_not_start(connect=f"{scheme}://{where}")

    assert error.data["reason"].endswith(
        "authentication required: `headers: {Authorization: …}`, or `--token-file`"
    )


@SCHEMES
@pytest.mark.parametrize("answer", [b"", b"220 mail.example.org ESMTP\r\n"])
async def test_another_protocol_at_the_address_is_explained(scheme, answer):
    async with listener(answering(answer)) as where:
        error = await why_it_does_not_start(connect=f"{scheme}://{where}")

    assert f"{scheme}://{where}/acp" in error.message


@SCHEMES
async def test_a_server_that_never_answers_is_given_its_start_timeout(scheme):
    async def handle(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with listener(handle) as where:
        error = await why_it_does_not_start(connect=f"{scheme}://{where}", start_timeout=0.3)

    assert f"could not be reached at {scheme}://{where}/acp" in error.message
    assert "within 0.3 s (start_timeout)" in error.message


@pytest.mark.slow
@SCHEMES
async def test_a_server_that_dies_in_a_turn_answers_the_prompt_at_once(scheme):
    with sdk_server("--die-on", "die") as (_, where):
        async with reach(connect=f"{scheme}://{where}", on_failure="end_chain") as client:
            await client.initialize()
            session = await client.new_session("/tmp")
            with pytest.raises(RequestError) as caught:
                await client.prompt(session, "die")

    assert caught.value.data["component"] == "far"
    assert caught.value.data["next"] == "the chain ends"
    assert f"lost its connection to {scheme}://{where}/acp" in caught.value.message


@pytest.mark.slow
@SCHEMES
async def test_a_server_that_is_silent_is_found_out_in_its_ping_timeout(scheme):
    with sdk_server() as (process, where):
        async with reach(
            connect=f"{scheme}://{where}", ping_timeout=1.0, on_failure="end_chain"
        ) as client:
            await client.initialize()
            session = await client.new_session("/tmp")
            async with trio.open_nursery() as nursery:

                async def prompt() -> None:
                    with pytest.raises(RequestError, match=r"did not answer .*within 1|0\.5 s"):
                        await client.prompt(session, "wait")

                nursery.start_soon(prompt)
                while "you said: wait" not in client.transcript.text(session):
                    await trio.lowlevel.checkpoint()
                os.kill(process.pid, signal.SIGSTOP)


@pytest.mark.slow
async def test_a_server_that_was_away_is_reached_again_and_gets_the_next_session():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    fixed = ("--port", str(port))
    restarts = RestartBudget(count=10, within=60.0)
    with sdk_server(*fixed) as (process, where):
        async with reach(connect=f"http://{where}", restarts=restarts) as client:
            await client.initialize()
            session = await client.new_session("/tmp")
            await client.prompt(session, "hello")
            process.kill()
            process.wait()
            with sdk_server(*fixed):
                with pytest.raises(RequestError, match="far"):
                    await client.prompt(session, "hello")  # its agent cannot resume sessions
                again = await client.new_session("/tmp")
                answer = await client.prompt(again, "hello")

    assert answer["stopReason"] == "end_turn"
