from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
import trio
import trio.testing
from support.subagents import running

from conductor.proxy import RequestError
from conductor.testing import FakeAgent
from proxies.hooks import Hook, Hooks

TOOL = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Run", "kind": "execute"}
DONE = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
OPTIONS = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]


def hook(*events, script="exit 0", file="/dev/null", **more):
    """A hook that writes what it gets to a file, as a line, and then runs a shell script."""
    command = ["sh", "-c", f'{{ cat; echo; }} >> "$0"; {script}', str(file)]
    return Hook(list(events), run=command, **more)


def events(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def telling(*events):
    """A hook that says what it gets, so that a test can wait for it."""
    return Hook(list(events), run=["sh", "-c", "cat >&2; exit 2"])


async def told(client, count):
    """What `telling` hooks have said, once there are this many of them."""
    await client.transcript.wait("session/update agent_message_chunk", count=count)
    lines = client.transcript.text().splitlines()
    said = [line[1:-1].removeprefix("A hook says: ") for line in lines if line]
    return [json.loads(line) for line in said]


async def test_a_hook_is_called_at_the_end_of_a_turn(chain, tmp_path):
    file = tmp_path / "events"
    async with chain(Hooks([hook("turn_end", file=file)]), FakeAgent(turns=[["hi"]])) as client:
        await client.initialize()
        session = await client.new_session(str(tmp_path))
        assert await client.prompt(session, "go") == {"stopReason": "end_turn"}

    assert events(file) == [
        {
            "event": "turn_end",
            "session_id": "session-1",
            "cwd": str(tmp_path),
            "stop_reason": "end_turn",
        }
    ]


async def test_a_hook_that_blocks_the_end_continues_the_turn_with_its_reason(chain, tmp_path):
    once = (
        f"test -e {tmp_path}/tested && exit 0; touch {tmp_path}/tested; echo run tests >&2; exit 2"
    )
    agent = FakeAgent(turns=[["one "], ["two"]])
    async with chain(Hooks([hook("turn_end", script=once)]), agent) as client:
        await client.initialize()
        session = await client.new_session("/")
        assert await client.prompt(session, "go") == {"stopReason": "end_turn"}
        assert client.transcript.text() == "one two"

    prompts = [each.params["prompt"] for each in agent.transcript.of("session/prompt", "request")]
    assert prompts[1:] == [[{"type": "text", "text": "run tests"}]]


async def test_a_hook_does_not_keep_a_turn_going_for_ever(chain):
    agent = FakeAgent()
    proxy = Hooks([hook("turn_end", script="exit 2")], max_continues=2)
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/")
        for _ in range(2):
            assert await client.prompt(session, "go") == {"stopReason": "end_turn"}

    assert len(agent.transcript.of("session/prompt", "request")) == 2 * 3


async def test_a_turn_that_the_user_cancelled_does_not_go_on(chain):
    agent = FakeAgent(turns=[[{"stopReason": "cancelled"}]])
    async with chain(Hooks([hook("turn_end", script="exit 2")]), agent) as client:
        await client.initialize()
        session = await client.new_session("/")
        assert await client.prompt(session, "go") == {"stopReason": "cancelled"}

    assert len(agent.transcript.of("session/prompt", "request")) == 1


async def test_cancelling_while_a_hook_runs_ends_the_turn(chain, tmp_path):
    running, go = tmp_path / "running", tmp_path / "go"
    for fifo in (running, go):
        os.mkfifo(fifo)
    script = f"echo > {running}; read word < {go}; exit 2"
    agent, answers = FakeAgent(), []
    async with chain(Hooks([hook("turn_end", script=script)]), agent) as client:
        await client.initialize()
        session = await client.new_session("/")

        async def prompt():
            answers.append(await client.prompt(session, "go"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(prompt)
            await trio.to_thread.run_sync(running.read_text, abandon_on_cancel=True)
            client.cancel(session)
            await agent.transcript.wait("session/cancel")
            await trio.to_thread.run_sync(go.write_text, "go\n", abandon_on_cancel=True)

    assert answers == [{"stopReason": "cancelled"}]
    assert len(agent.transcript.of("session/prompt", "request")) == 1


def asking(agent, answers):
    async def ask(session):
        params = {"sessionId": session, "toolCall": {"toolCallId": "c1"}, "options": OPTIONS}
        answers.append(await agent.endpoint.request("session/request_permission", params))

    return ask


@pytest.mark.parametrize(
    ("script", "kinds", "option", "said"),
    [
        ("exit 0", [], "yes", ""),
        ("echo too risky >&2; exit 2", [], "no", "\n\n[Denied by a hook: too risky]\n\n"),
        ("exit 201", [], "yes", ""),
        ("exit 2", ["read"], "yes", ""),
        ("exit 2", ["execute"], "no", "\n\n[Denied by a hook: blocked by a hook]\n\n"),
    ],
)
async def test_a_hook_may_deny_permission(chain, script, kinds, option, said):
    answers, agent = [], FakeAgent()
    agent.turns.append([TOOL, asking(agent, answers)])
    async with chain(Hooks([hook("permission", script=script, kinds=kinds)]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")
        assert client.transcript.text() == said

    assert answers == [{"outcome": {"outcome": "selected", "optionId": option}}]


@pytest.mark.parametrize(
    ("run", "cwd", "said"),
    [
        (["true"], "missing", "true cannot be run in {cwd}: No such file or directory"),
        (["true"], "nul\0", "true cannot be run"),
        (["no-such-program"], "", "no-such-program cannot be run: No such file or directory"),
        (["sh", "-c", "kill -9 $$"], "", "ended by signal 9"),
        (["sleep", "1000"], "", "sleep took over 0.1 s"),
    ],
)
async def test_a_permission_hook_that_gives_no_answer_denies(chain, tmp_path, run, cwd, said):
    cwd = f"{tmp_path}/{cwd}"
    answers, agent = [], FakeAgent()
    agent.turns.append([TOOL, asking(agent, answers)])
    seconds = 0.1 if "sleep" in run else 30
    proxy = Hooks([Hook(["permission"], run=run, timeout=timedelta(seconds=seconds))])
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(cwd), "go")
        assert said.format(cwd=cwd) in client.transcript.text()

    assert answers == [{"outcome": {"outcome": "selected", "optionId": "no"}}]


FORM = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object"}}


def questioning(agent, answers, **scope):
    async def ask(session):
        params = {**FORM, **(scope or {"sessionId": session})}
        answers.append(await agent.endpoint.request("elicitation/create", params))

    return ask


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("script", "action", "said"),
    [
        ("exit 0", "accept", ""),
        ("exit 1", "accept", ""),
        ("echo not now >&2; exit 2", "decline", "not now"),
        ("kill -9 $$", "decline", "a hook gave no answer (ended by signal 9)"),
    ],
)
async def test_a_hook_may_decline_an_elicitation(chain, tmp_path, script, action, said, version):
    file, answers, agent = tmp_path / "events", [], FakeAgent()
    agent.turns.append([questioning(agent, answers)])
    proxy = Hooks([hook("elicitation", script=script, file=file)])
    async with chain(proxy, agent) as client:
        client.handlers["elicitation/create"] = lambda params: {"action": "accept"}
        await client.initialize(version=version, capabilities={"elicitation": {"form": {}}})
        await client.prompt_turn(await client.new_session("/"), "go")
        notices = [
            each for each in client.transcript.updates() if each["sessionUpdate"] == "notice"
        ]
        text = client.transcript.text()

    shown = {"sessionUpdate": "notice", "severity": "warning", "title": "Declined by a hook"}
    in_version_2 = version == 2 and said
    assert notices == ([{**shown, "description": said}] if in_version_2 else [])
    assert text == (f"\n\n[Declined by a hook: {said}]\n\n" if version == 1 and said else "")
    assert [each["action"] for each in answers] == [action]
    assert events(file) == [
        {"event": "elicitation", "session_id": "session-1", "cwd": "/", "elicitation": FORM}
    ]


async def test_a_hook_is_called_for_an_elicitation_of_no_session(chain, tmp_path):
    file, answers, agent = tmp_path / "events", [], FakeAgent()
    agent.turns.append([questioning(agent, answers, requestId=1)])
    proxy = Hooks([hook("elicitation", script="exit 2", file=file)])
    async with chain(proxy, agent) as client:
        await client.initialize(capabilities={"elicitation": {"form": {}}})
        await client.prompt_turn(await client.new_session("/"), "go")

    assert answers == [{"action": "decline"}]
    assert [each["elicitation"]["requestId"] for each in events(file)] == [1]


@pytest.mark.parametrize(
    "members", [{"options": 5}, {"toolCall": None, "subject": "x"}, {"toolCall": [1]}]
)
async def test_a_malformed_question_does_not_get_past_a_hook_that_blocks(chain, members):
    asked, agent = [], FakeAgent()

    async def ask(session):
        params = {"sessionId": session, "toolCall": {"toolCallId": "c1"}, "options": OPTIONS}
        with suppress(RequestError):
            await agent.endpoint.request("session/request_permission", {**params, **members})

    async def by_the_user(params):
        asked.append(params)
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    agent.turns.append([TOOL, ask])
    async with chain(Hooks([hook("permission", script="exit 2")]), agent) as client:
        client.handlers["session/request_permission"] = by_the_user
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")

    assert asked == []


async def test_updates_wait_while_too_many_events_wait_for_their_hooks(
    chain, tmp_path, monkeypatch
):
    """What waits is bounded, and every event is told of."""
    monkeypatch.setattr("proxies.hooks._MAX_EVENTS", 20)
    fifo, count = tmp_path / "go", 30
    os.mkfifo(fifo)
    calls = [{**TOOL, "toolCallId": f"c{number}"} for number in range(count)]
    agent = FakeAgent(turns=[calls])
    script = f"test -e {tmp_path}/open || read word < {fifo}; echo x >> {tmp_path}/told"
    proxy = Hooks([Hook(["tool_start"], run=["sh", "-c", script])])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session(str(tmp_path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.prompt, session, "go")
            await client.transcript.wait("session/update tool_call", count=20)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(client.transcript.updates()) == 20
            (tmp_path / "open").touch()
            writer = os.open(fifo, os.O_RDWR)
            os.write(writer, b"go\n" * 8)
            await client.transcript.wait("session/update tool_call", count=count)
    os.close(writer)


async def test_the_first_hook_that_blocks_decides(chain, tmp_path):
    file = tmp_path / "events"
    hooks = [hook("permission", script="exit 2"), hook("permission", file=file)]
    agent = FakeAgent()
    agent.turns.append([TOOL, asking(agent, [])])
    async with chain(Hooks(hooks), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")

    assert not file.exists()


async def test_hooks_of_the_end_of_a_tool_run_after_those_of_its_start(chain, tmp_path):
    """Also of a tool that ends at once; others do not wait for it."""
    file, gate = tmp_path / "events", tmp_path / "gate"
    os.mkfifo(gate)
    hooks = Hooks(
        [
            hook("tool_start", script=f"cat {gate}", kinds=["execute"]),
            hook("tool_start", "tool_end", file=file),
            telling("tool_end"),
        ]
    )
    read = {**TOOL, "toolCallId": "c2", "kind": "read", "status": "completed"}
    agent = FakeAgent(turns=[[TOOL, DONE, read]])
    async with chain(hooks, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")
        (first,) = await told(client, 1)
        await trio.to_thread.run_sync(gate.write_text, "")
        await told(client, 2)

    assert first["tool_call"]["toolCallId"] == "c2"
    calls = [(each["event"], each["tool_call"]["toolCallId"]) for each in events(file)]
    assert [event for event, id in calls if id == "c1"] == ["tool_start", "tool_end"]


async def test_hooks_do_not_delay_updates(chain):
    agent = FakeAgent(turns=[[TOOL, DONE]])
    async with chain(Hooks([hook("tool_start", script="sleep 1000")]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")

        assert client.transcript.updates() == [TOOL, DONE]


async def test_a_hook_refuses_a_command_that_is_announced_without_it(chain):
    """As Claude announces it."""
    announced = {**TOOL, "status": "pending", "rawInput": {}}
    known = {"sessionUpdate": "tool_call_update", "toolCallId": "c1"}
    script = "grep -q 'rm -rf' || exit 0; echo not that >&2; exit 2"

    async def until_cancelled(session):
        await agent.transcript.wait("session/cancel")

    agent = FakeAgent()
    agent.turns.append([announced, {**known, "rawInput": {"command": "rm -rf /"}}, until_cancelled])
    agent.turns[0].append({"stopReason": "cancelled"})
    async with chain(Hooks([Hook(["tool_start"], run=["sh", "-c", script])]), agent) as client:
        await client.initialize()
        session = await client.new_session("/")
        assert await client.prompt(session, "go") == {"stopReason": "cancelled"}
        assert client.transcript.text() == "\n\n[A hook says: not that]\n\n"


@pytest.mark.parametrize("version", [1, 2])
async def test_a_hook_is_called_for_a_failure_that_the_end_of_a_turn_reports(chain, version):
    told = {"category": "limit", "severity": "error", "title": "Usage limit reached|1753088400"}
    end = {"stopReason": "end_turn", "_meta": {"jetbrains": {"air": {"sessionFailure": told}}}}
    agent = FakeAgent(turns=[[end]])
    async with chain(Hooks([telling("error", "turn_end")]), agent) as client:
        await client.initialize(version=version, capabilities={"session": {"notices": {}}})
        await client.prompt_turn(await client.new_session("/"), "go")
        await client.transcript.wait("session/update notice")

    (notice,) = [each for each in client.transcript.updates() if "title" in each]
    heard = json.loads(notice["description"])
    assert (heard["event"], heard["error"]) == (
        "error",
        {"code": -32603, "message": told["title"], "reason": "rate limit", "ends_at": 1753088400},
    )


async def test_a_hook_is_called_for_an_error(chain):
    agent = FakeAgent(turns=[[RequestError(-32000, "no money")]])
    async with chain(Hooks([telling("error")]), agent) as client:
        await client.initialize()
        session = await client.new_session("/")
        with pytest.raises(RequestError, match="no money"):
            await client.prompt(session, "go")

        assert (await told(client, 1))[0]["error"] == {
            "code": -32000,
            "message": "no money",
            "reason": "login required",
        }


async def test_a_hook_is_called_for_a_turn_of_version_2_that_ends_with_an_error(chain):
    error = {"code": -32603, "message": "429 Too Many Requests"}
    agent = FakeAgent(turns=[[{"stopReason": "error", "error": error}]])
    async with chain(Hooks([telling("error", "turn_end")]), agent) as client:
        await client.initialize(version=2)
        await client.prompt_turn(await client.new_session("/"), "go")
        await client.transcript.wait("session/update notice")

    (notice,) = [each for each in client.transcript.updates() if "title" in each]
    heard = json.loads(notice["description"])
    assert (heard["event"], heard["error"]) == ("error", {**error, "reason": "rate limit"})


async def test_in_version_2_a_blocked_turn_continues_with_another_prompt(chain):
    async def turn(session):
        running = {"sessionUpdate": "state_update", "state": "running"}
        for update in (running, {**running, "state": "idle", "stopReason": "end_turn"}):
            agent.update(session, update)

    agent = FakeAgent(turns=[[turn], [turn], [turn]])
    proxy = Hooks([hook("turn_end", script="echo more >&2; exit 2")], max_continues=1)
    async with chain(proxy, agent) as client:
        await client.initialize(version=2)
        await client.prompt(await client.new_session("/"), "go")
        again = await agent.transcript.wait("session/prompt?", count=2)

        assert again.params["prompt"] == [{"type": "text", "text": "more"}]


@asynccontextmanager
async def serving(serve):
    """The URL of a server."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/hook"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "option"), [("200 OK", "yes"), ("403 Forbidden", "no"), ("500 Oh", "yes")]
)
async def test_a_url_is_called(chain, status, option):
    received = []

    async def serve(stream):
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            data += await stream.receive_some()
        received.append(data)
        body = f"HTTP/1.1 {status}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!"
        await stream.send_all(body.encode())
        await stream.aclose()

    answers, agent = [], FakeAgent()
    agent.turns.append([TOOL, asking(agent, answers)])
    async with serving(serve) as url:
        proxy = Hooks([Hook(["permission"], url=url, headers={"X-Key": "k"})])
        async with chain(proxy, agent) as client:
            await client.initialize()
            await client.prompt(await client.new_session("/work"), "go")
            told = "\n\n[Denied by a hook: no!]\n\n" if option == "no" else ""
            assert client.transcript.text() == told

    assert answers == [{"outcome": {"outcome": "selected", "optionId": option}}]
    head, _, body = received[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook ")
    assert b"X-Key: k" in head
    assert json.loads(body)["tool_call"]["title"] == "Run"


async def test_an_answer_of_a_url_without_end_is_cut(chain):
    async def serve(stream):
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            while True:
                await stream.send_all(b"x" * 10_000)

    answers, agent = [], FakeAgent()
    agent.turns.append([TOOL, asking(agent, answers)])
    async with (
        serving(serve) as url,
        chain(Hooks([Hook(["permission"], url=url)]), agent) as client,
    ):
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "go")

    assert answers == [{"outcome": {"outcome": "selected", "optionId": "yes"}}]


async def test_an_answer_of_a_url_that_comes_too_slowly_denies(chain):
    async def serve(stream):
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
            while True:
                await stream.send_all(b"x")
                await trio.sleep(0.05)

    answers, agent = [], FakeAgent()
    agent.turns.append([TOOL, asking(agent, answers)])
    async with serving(serve) as url:
        hook = Hook(["permission"], url=url, timeout=timedelta(seconds=1))
        async with chain(Hooks([hook]), agent) as client:
            await client.initialize()
            await client.prompt(await client.new_session("/work"), "go")
            assert "a hook gave no answer (no answer within 1 s)" in client.transcript.text()

    assert answers == [{"outcome": {"outcome": "selected", "optionId": "no"}}]


async def test_a_hook_that_takes_too_long_blocks_nothing(chain, virtual_clock):
    slow = hook("turn_end", script="sleep 1000", timeout=timedelta(seconds=5))
    async with chain(Hooks([slow]), FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session("/")
        assert await client.prompt(session, "go") == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a hook has `run` or `url`"),
        ({"run": ["x"], "url": "http://x"}, "a hook has `run` or `url`"),
        ({"url": "file:///etc/passwd"}, "begins with http"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Hook(["turn_end"], **options)


def test_secrets_are_not_shown():
    shown = repr(Hook(["error"], url="http://x/?key=s3cret", headers={"A": "s3cret"}))
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("kinds", "members"),
    [
        (["execute"], {"kind": "other", "rawInput": {"command": "ls"}}),
        (["execute"], {"kind": "read", "rawInput": '{"cmd": ["ls"]}'}),
        (["edit"], {"kind": "other", "content": [{"type": "diff", "path": "/a", "newText": "x"}]}),
    ],
)
async def test_a_hook_for_a_kind_gets_the_details_of_the_call(chain, kinds, members):
    answers, agent = [], FakeAgent()
    agent.turns.append([{**TOOL, **members}, asking(agent, answers)])
    proxy = Hooks([hook("permission", script="exit 2", kinds=kinds)])
    async with chain(proxy, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")

    assert answers == [{"outcome": {"outcome": "selected", "optionId": "no"}}]


async def test_a_hook_learns_of_a_subagents_tools_in_the_session_of_the_user(chain):
    agent = FakeAgent()
    agent.turns.append([running(), lambda _: agent.update("child", TOOL)])
    async with chain(Hooks([telling("tool_start")]), agent) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/")
        await client.prompt(session, "go")
        (event,) = await told(client, 1)
        await agent.transcript.wait("session/cancel", count=2)

    assert (event["session_id"], event["user_session_id"]) == ("child", session)
    cancelled = [each.params["sessionId"] for each in agent.transcript.of("session/cancel")]
    assert cancelled == ["child", session]


async def test_the_end_of_a_subagents_work_is_no_turn_that_a_hook_continues(chain):
    states = [{"sessionUpdate": "state_update", "state": each} for each in ("running", "idle")]

    def work(session):
        for each in states:
            agent.update("child", each)

    agent = FakeAgent()
    agent.turns.append([running(), work])
    async with chain(Hooks([telling("turn_end")], max_continues=0), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session("/")
        await client.prompt_turn(session, "go")

    asked = agent.transcript.of("session/prompt", "request")
    assert [each.params["sessionId"] for each in asked] == [session]
