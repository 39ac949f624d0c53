"""`conductor.open_chain` in programs that run trio and asyncio."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.testing

import conductor
from conductor.acp.turns import Turns
from conductor.client.chain_core import ChainCore, ChainSettings, TurnCore
from conductor.errors import (
    ChainFileError,
    ComponentError,
    ConnectionClosed,
    LocalProtocolError,
    RequestError,
    StartError,
)
from conductor.schema import v1, v2
from conductor.transport.io_loop import HIGH_WATERMARK


@pytest.fixture(params=["trio", "asyncio"])
def run(request):
    """Runs an async function with a time limit."""

    async def limited(main: Any) -> Any:
        with anyio.fail_after(60):
            return await main()

    return lambda main: anyio.run(limited, main, backend=request.param)


def test_the_updates_of_a_turn_are_typed_and_in_order(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            assert client.initialized.agent_info.name == "test-agent"
            session = await client.new_session()
            async with session.turn("say one\nthink two\nask Three") as turn:
                updates = [update async for update in turn]
            return updates, turn.result

    updates, result = run(main)
    assert [type(update) for update in updates] == [
        *(v1.AgentMessageChunk, v1.AgentThoughtChunk),
        *(v1.ToolCall, v1.ToolCallUpdate, v1.AgentMessageChunk),
    ]
    assert result == conductor.TurnResult("end_turn", "oneThree: reject\n")


def test_a_turn_of_version_2_ends_with_its_state(run, chain):
    async def main():
        async with conductor.open_chain(chain, version=2) as client:
            session = await client.new_session()
            async with session.turn("say one") as turn:
                updates = [type(update) async for update in turn]
            return updates, turn.result, (await session.prompt("stop refusal")).stop_reason

    updates, result, stop_reason = run(main)
    assert v2.AgentMessageChunk in updates
    assert updates[-1] is v2.IdleStateUpdate
    assert (result.stop_reason, result.text, stop_reason) == ("end_turn", "one", "refusal")


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_state_that_was_on_its_way_does_not_end_a_turn_of_version_2(is_running):
    """As the first state of a new session may be."""
    turn = TurnCore(v2, Turns(2).of("s"))
    turn.on_update(state("idle"))
    if is_running:
        turn.on_update(state("running"))
    turn.on_response({"messageId": "p"})
    assert not turn.ended.is_set()
    turn.on_update(state("idle", stopReason="refusal"))
    assert turn.result == conductor.TurnResult("refusal", "")


async def test_an_idle_state_repeated_with_background_work_does_not_end_a_turn():
    turns = Turns(2).of("s")
    for name in ("running", "idle"):  # a turn before
        turns.take(state(name)["update"], 0.0)
    turn = TurnCore(v2, turns)
    turn.on_response({"messageId": "p"})
    turn.on_update(state("idle", background=[]))
    assert not turn.ended.is_set()
    turn.on_update(state("running"))
    turn.on_update(state("idle", background=[]))
    assert turn.ended.is_set()


async def test_a_turn_that_ends_before_its_prompt_is_answered_has_what_its_end_tells():
    turn = TurnCore(v2, Turns(2).of("s"))
    usage = {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
    for update in (state("running"), state("idle", stopReason="max_tokens", usage=usage)):
        turn.on_update(update)
    assert not turn.ended.is_set()

    turn.on_response({"messageId": "p"})
    assert turn.result is not None
    assert turn.result.stop_reason == "max_tokens"
    assert turn.result.usage.total_tokens == 3


async def test_all_who_wait_for_the_updates_of_a_turn_see_its_end(autojump_clock):
    """Ctrl-C may leave one waiting beside the one that leaves the turn."""
    turn = TurnCore(v2, Turns(2).of("s"))
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(turn.updates)
            await trio.testing.wait_all_tasks_blocked()
            turn.end()


def state(name, **members):
    return {"update": {"sessionUpdate": "state_update", "state": name, **members}}


@pytest.mark.parametrize("is_async", [True, False])
def test_permission_is_asked_in_the_programs_thread(run, chain, is_async):
    asked = []

    def answer(question: v1.RequestPermissionRequest) -> str:
        asked.append((question.tool_call.title, threading.current_thread()))
        return question.options[1].option_id

    async def answer_later(question: v1.RequestPermissionRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return answer(question)

    async def main():
        permission = answer_later if is_async else answer
        async with conductor.open_chain(chain, permission=permission) as client:
            return await (await client.new_session()).prompt("ask Delete?")

    assert run(main).text == "Delete?: always\n"
    assert asked == [("Delete?", threading.current_thread())]


def test_the_permission_of_a_subagent_is_asked_of_the_program(run, tmp_path):
    agent = Path(__file__).parents[1] / "support/components/delegating_agent.py:DelegatingAgent"
    chain = tmp_path / "delegating.yaml"
    chain.write_text(
        f"version: 1\nagent: {{use: {agent}, with: {{directory: {tmp_path}, node: a}}}}"
    )
    told = []

    def seen(params):
        told.append(params["update"]["sessionUpdate"])

    async def main():
        handlers = {"session/update": seen}
        permission = lambda question: question.options[0].option_id  # noqa: E731
        async with conductor.open_chain(chain, permission=permission, handlers=handlers) as client:
            return await (await client.new_session()).prompt("go")

    assert run(main).text == "yes"
    assert told == ["tool_call", "agent_message_chunk"]


def test_without_a_callback_permission_is_rejected(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            return await (await client.new_session()).prompt("ask Delete?")

    assert run(main).text == "Delete?: reject\n"


@pytest.mark.parametrize("mistake", ["raise", "answer"])
def test_a_mistake_of_the_permission_callback_is_raised_by_the_turn(run, chain, mistake):
    def permission(question: v1.RequestPermissionRequest) -> str:
        if mistake == "raise":
            raise ValueError("no such rule")
        return "unknown"

    async def main():
        async with conductor.open_chain(chain, permission=permission) as client:
            session = await client.new_session()
            with pytest.raises(ValueError, match=r"no such rule|'unknown' is not an option"):
                await session.prompt("ask Delete?")
            return await session.prompt("say next")

    assert run(main).text == "next"


def test_mistakes_in_the_chain_file_are_the_diagnostics_of_the_error(run, chain):
    chain.write_text("version: 1\nproxies:\n  - uses: usage\nagent:\n  rum: [x]\n")

    async def main():
        async with conductor.open_chain(chain):
            pass

    with pytest.raises(ChainFileError) as caught:
        run(main)
    lines = {problem.location.line for problem in caught.value.diagnostics}
    assert {3, 5} <= lines


def test_a_chain_without_an_agent_is_refused(run, chain):
    chain.write_text("version: 1\nproxies:\n  - use: usage\n")

    async def main():
        async with conductor.open_chain(chain):
            pass

    with pytest.raises(ChainFileError, match="no `agent`"):
        run(main)


def test_a_component_that_does_not_start_is_named(run, chain):
    chain.write_text("version: 1\nagent:\n  name: helper\n  run: [no-such-program]\n")

    async def main():
        async with conductor.open_chain(chain):
            pass

    with pytest.raises(StartError, match="no-such-program") as caught:
        run(main)
    assert caught.value.component == "helper"


def test_an_agent_that_dies_is_named_by_the_turn(run, chain):
    agent = f"run: [{sys.executable}, -m, conductor.testing.agent]"
    chain.write_text(f"version: 1\nagent:\n  name: helper\n  {agent}\n")

    async def main():
        async with conductor.open_chain(chain) as client:
            session = await client.new_session()
            with pytest.raises((ComponentError, RequestError)) as caught:
                await session.prompt("exit 3")
            return str(caught.value)

    assert "helper" in run(main)


def test_an_exception_of_the_block_is_raised_as_it_is(run, chain):
    async def main():
        async with conductor.open_chain(chain):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(main)


def test_a_cancelled_prompt_cancels_its_turn_and_the_next_one_waits_for_its_end(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            session = await client.new_session()
            with anyio.CancelScope() as scope:
                async with session.turn("say now\nwait") as turn:
                    async for _ in turn:
                        scope.cancel()
            assert scope.cancelled_caught
            return await session.prompt("say next")

    assert run(main).text == "next"


def test_a_turn_that_is_left_is_cancelled(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            session = await client.new_session()
            async with session.turn("say now\nwait") as turn:
                async for _ in turn:
                    break
            return turn.result

    assert run(main).stop_reason == "cancelled"


def test_cancel_ends_a_turn_and_its_question(run, chain):
    async def main():
        asked = anyio.Event()

        async def permission(question: v1.RequestPermissionRequest) -> str | None:
            asked.set()
            await anyio.sleep_forever()
            return None

        async def cancel() -> None:
            await asked.wait()
            await session.cancel()

        async with conductor.open_chain(chain, permission=permission) as client:
            session = await client.new_session()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel)
                return await session.prompt("ask Delete?")

    assert run(main).stop_reason == "cancelled"


def test_sessions_run_side_by_side_and_turns_of_one_do_not(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            one, two = await client.new_session(), await client.new_session()
            async with one.turn("wait"):
                with pytest.raises(LocalProtocolError, match="a turn of this session runs"):
                    await one.prompt("say more")
                return await two.prompt("say two")

    assert run(main).text == "two"


def test_the_agent_reads_files_through_a_handler(run, chain):
    def read(params: dict[str, Any]) -> dict[str, Any]:
        return {"content": f"text of {params['path']}"}

    async def main():
        async with conductor.open_chain(
            chain,
            handlers={"fs/read_text_file": read},
            capabilities={"fs": {"readTextFile": True}},
        ) as client:
            return await (await client.new_session()).prompt("read /a.txt")

    assert "text of /a.txt" in run(main).text


def test_a_request_is_answered_while_updates_wait_to_be_read(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            session = await client.new_session()
            count = 0
            async with session.turn("stream 300 16384") as turn:
                async for _ in turn:
                    if count == 0:
                        while client._core.unread() <= HIGH_WATERMARK:  # then nothing is read
                            await anyio.lowlevel.checkpoint()
                        await client.new_session()
                    count += 1
            return count, len(turn.result.text)

    assert run(main) == (300, 300 * 16384)


def test_cancellation_while_the_chain_starts_ends_its_processes(run, chain):
    chain.write_text("version: 1\nagent:\n  run: [sleep, '60']\n")

    async def main():
        with anyio.move_on_after(0.5) as scope:
            async with conductor.open_chain(chain):
                pass
        return scope.cancelled_caught

    assert run(main)


def test_an_asyncio_timeout_in_the_block_ends_the_thread(chain):
    async def main():
        async with asyncio.timeout(0.5), conductor.open_chain(chain) as client:
            await (await client.new_session()).prompt("wait")

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_requests_after_the_block_are_refused(run, chain):
    async def main():
        async with conductor.open_chain(chain) as client:
            session = await client.new_session()
        with pytest.raises(ConnectionClosed):
            await session.prompt("say late")
        with pytest.raises(ConnectionClosed):
            await client.new_session()

    run(main)


async def test_the_newest_subagents_are_remembered_and_none_with_long_ids():
    async def call_back(function: Any, *args: Any) -> Any:
        return function(*args)

    core = ChainCore(ChainSettings(call_back))
    await core.existing_session("s")
    update = core.handlers()["session/update"]
    for child in (*(f"{n}" for n in range(1001)), "x" * 1025):
        told = {"sessionUpdate": "subagent_update", "sessionId": child}
        update({"sessionId": "s", "update": told})

    assert list(core._subagents) == [f"{n}" for n in range(1, 1001)]


CUT_OFF = """
import json, os, sys
from pathlib import Path

kept = Path(sys.argv[1])
SESSION = {"sessionId": "s"}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)


def update(**update):
    send(method="session/update", params={**SESSION, "update": update})


for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            info = {"name": "keeps", "version": "1"}
            result = {"protocolVersion": 2, "info": info, "capabilities": {"session": {}}}
            send(id=asked["id"], result=result)
        case "session/new":
            send(id=asked["id"], result=SESSION)
        case "session/resume":
            send(id=asked["id"], result={})
        case "session/prompt":
            keys = kept.read_text().split() if kept.exists() else []
            key = asked["params"]["idempotencyKey"]
            kept.write_text(" ".join([*keys, key]))
            text = asked["params"]["prompt"][0]["text"]
            if text == "work":
                update(sessionUpdate="state_update", state="running")
            if text == "wait for cancel" and not keys:
                chunk = {"type": "text", "text": "waiting"}
                update(sessionUpdate="agent_message_chunk", messageId="w", content=chunk)
                continue
            if len(keys) < int(sys.argv[2]):
                os._exit(1)
            send(id=asked["id"], result={"messageId": key})
            content = {"type": "text", "text": "done"}
            update(sessionUpdate="state_update", state="running")
            update(sessionUpdate="agent_message_chunk", messageId="m", content=content)
            update(sessionUpdate="state_update", state="idle", stopReason="end_turn")
        case "session/cancel":
            os._exit(1)
"""


def agent_that_exits(times, tmp_path):
    """A chain of an agent that exits at its first prompts; a file has the keys of all."""
    (tmp_path / "agent.py").write_text(CUT_OFF)
    path = tmp_path / "chain.yaml"
    command = [sys.executable, str(tmp_path / "agent.py"), str(tmp_path / "keys"), str(times)]
    path.write_text(f"version: 1\nagent: {{name: keeps, run: {json.dumps(command)}}}\n")
    return path


def keys(tmp_path):
    return (tmp_path / "keys").read_text().split()


def test_a_prompt_of_version_2_that_was_cut_off_is_sent_again_with_its_key(run, tmp_path):
    async def main():
        async with conductor.open_chain(agent_that_exits(1, tmp_path), version=2) as client:
            session = await client.new_session()
            return [await session.prompt("hello"), await session.prompt("again")]

    assert [each.text for each in run(main)] == ["done", "done"]
    first, second, other = keys(tmp_path)
    assert first == second != other


def test_a_prompt_that_is_cut_off_twice_has_failed(run, tmp_path):
    async def main():
        async with conductor.open_chain(agent_that_exits(2, tmp_path), version=2) as client:
            session = await client.new_session()
            with pytest.raises(RequestError, match="The prompt was cut off"):
                await session.prompt("hello")
            return await session.prompt("again")

    assert run(main).text == "done"
    assert len(set(keys(tmp_path))) == 2
    assert len(keys(tmp_path)) == 3


def test_a_prompt_whose_work_has_begun_is_not_sent_again(run, tmp_path):
    async def main():
        async with conductor.open_chain(agent_that_exits(1, tmp_path), version=2) as client:
            session = await client.new_session()
            with pytest.raises(RequestError, match="part of it may have been done"):
                await session.prompt("work")
            return await session.prompt("again")

    assert run(main).text == "done"
    assert len(set(keys(tmp_path))) == len(keys(tmp_path)) == 2


def test_a_prompt_that_was_cancelled_is_not_sent_again(run, tmp_path):
    async def main():
        async with conductor.open_chain(agent_that_exits(1, tmp_path), version=2) as client:
            session = await client.new_session()
            async with session.turn("wait for cancel") as turn:
                async for _ in turn:
                    await session.cancel()

    with pytest.raises(RequestError, match="The prompt was cut off"):
        run(main)
    assert len(keys(tmp_path)) == 1
