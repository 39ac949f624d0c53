"""A component behind a Unix socket."""

from __future__ import annotations

import json

import pytest
import trio
from remote.test_error_messages import why_it_does_not_start
from support.raw_json import dumps
from support.remote_agents import reach

from conductor.errors import RequestError


async def serve(path, handle, task_status=trio.TASK_STATUS_IGNORED):
    listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listening.bind(str(path))
    listening.listen()
    await trio.serve_listeners(handle, [trio.SocketListener(listening)], task_status=task_status)


def agent(*turns):
    """Answers every request with the next of these results."""

    async def handle(stream: trio.SocketStream) -> None:
        left, buffered = list(turns), b""
        async with stream:
            while left and (chunk := await stream.receive_some()):
                buffered += chunk
                *lines, buffered = buffered.split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "id" in message and left:
                        answer = {"jsonrpc": "2.0", "id": message["id"], "result": left.pop(0)}
                        await stream.send_all(dumps(answer) + b"\n")

    return handle


async def test_messages_are_lines_of_a_unix_socket(tmp_path, nursery):
    path = tmp_path / "s"
    turns = [{"protocolVersion": 1}, {"sessionId": "s1"}, {"stopReason": "end_turn"}, {}]
    await nursery.start(serve, path, agent(*turns))

    async with reach(unix=str(path)) as client:
        await client.initialize()
        session = await client.new_session("/tmp")
        answer = await client.prompt(session, "x" * 1_000_000)

    assert answer == {"stopReason": "end_turn"}
    nursery.cancel_scope.cancel()


async def test_a_socket_that_is_closed_in_a_turn_answers_the_prompt(tmp_path, nursery):
    path = tmp_path / "s"
    await nursery.start(serve, path, agent({"protocolVersion": 1}, {"sessionId": "s1"}))

    async with reach(unix=str(path), on_failure="end_chain") as client:
        await client.initialize()
        with pytest.raises(RequestError) as caught:
            await client.prompt(await client.new_session("/tmp"), "hello")

    assert f"{path}" in caught.value.message
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("made", "why"), [(False, "no such file"), (True, "connection refused")])
async def test_a_socket_without_a_listener_is_named(tmp_path, made, why):
    path = tmp_path / "s"
    if made:
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as left:
            await left.bind(str(path))

    error = await why_it_does_not_start(unix=str(path))

    assert f"it could not be reached at {path}: {why}" in error.message
