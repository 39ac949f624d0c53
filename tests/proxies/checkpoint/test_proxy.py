from __future__ import annotations

import fcntl
import math

import pytest
from support.checkpoint_turns import OPTIONS, call, changes, command, files, needs_git, opened

from conductor.errors import withhold_details
from conductor.testing import FakeAgent
from proxies.checkpoint import Checkpoint

pytestmark = needs_git


@pytest.fixture
def proxy(tmp_path):
    return Checkpoint(directory=tmp_path / "state")


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        (["read", "search", "think", "fetch", "switch_mode"], 0),
        (["read", "edit", "delete"], 1),
        (["_custom"], 1),
        ([None], 1),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_the_first_changing_tool_of_a_turn_takes_a_checkpoint(
    chain, project, proxy, kinds, taken, version
):
    def step(id, kind):
        update = call(kind, id)
        if version == 2:
            update["sessionUpdate"] = "tool_call_update"
        return {name: value for name, value in update.items() if value is not None}

    turns = [[step(f"{turn} {n}", kind) for n, kind in enumerate(kinds)] for turn in range(2)]
    agent = FakeAgent(turns=turns)
    async with chain(proxy, agent) as client:
        session = await opened(client, project, version)
        for count in (taken, 2 * taken):
            await client.prompt_turn(session, "hi")
            await client.prompt(session, "/rewind")
            listed = str(client.transcript.updates()[-1 if version == 1 else -2]["content"])
            assert listed.count(" hi") == count


async def test_files_and_terminals_of_the_client_take_a_checkpoint_first(chain, project, proxy):
    agent = FakeAgent()

    async def write(session):
        params = {"sessionId": session, "path": str(project / "a.txt"), "content": "two"}
        await agent.endpoint.request("fs/write_text_file", params)

    agent.turns = [[write]]
    async with chain(proxy, agent) as client:

        def written(params):
            (project / "a.txt").write_text(params["content"])
            return {}

        client.handlers["fs/write_text_file"] = written
        session = await opened(client, project)
        await client.prompt(session, "hi")
        await client.prompt(session, "/rewind 1")
    assert files(project) == {"a.txt": "one"}


async def test_before_every_turn_the_agent_gets_the_prompt_after_the_checkpoint(
    chain, project, tmp_path
):
    agent = FakeAgent()

    async def change(session):
        (project / "a.txt").write_text("changed")

    agent.turns = [[change]]
    proxy = Checkpoint(directory=tmp_path / "state", before="turn")
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        await client.prompt(session, "/rewind 1")
    assert files(project) == {"a.txt": "one"}


async def test_the_oldest_checkpoints_are_deleted(chain, project, tmp_path):
    proxy = Checkpoint(directory=tmp_path / "state", keep=2)
    agent = FakeAgent(turns=[[call("edit", str(n))] for n in range(3)])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        for text in ("one", "two", "three"):
            await client.prompt(session, text)
        listed = await command(client, session, "/rewind")
        assert [line.split()[-1] for line in listed.splitlines()] == ["two", "three"]
        assert await command(client, session, "/rewind 1") == (
            "Not possible: There is no checkpoint 1."
        )


async def test_a_rewind_to_the_oldest_of_the_kept_checkpoints_works(chain, project, tmp_path):
    proxy = Checkpoint(directory=tmp_path / "state", keep=2)
    agent = FakeAgent()
    agent.turns = [
        changes(agent, lambda text=text: (project / "a.txt").write_text(text))
        for text in ("two", "three", "four")
    ]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        for _ in range(3):
            await client.prompt(session, "hi")
        await client.prompt(session, "/rewind 2")  # the fourth checkpoint: the others are deleted
        assert files(project) == {"a.txt": "two"}
        await client.prompt(session, "/rewind 4")
    assert files(project) == {"a.txt": "four"}


async def test_no_rewind_while_a_turn_runs(chain, project, proxy):
    agent = FakeAgent()
    said = []

    async def ask(session):
        said.append(await command(client, session, "/rewind 1"))

    agent.turns = [[call("edit"), ask]]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        assert await command(client, session, "/rewind x") == "Write /rewind or /rewind NUMBER."
    assert said == ["A turn is running: cancel it, or wait for its end."]


async def test_a_checkpoint_that_fails_is_told_once_and_the_turn_goes_on(
    chain, project, proxy, tmp_path
):
    (tmp_path / "state").write_text("no directory")
    agent = FakeAgent(turns=[[call("edit"), call("edit", "2"), "done"]])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        said = client.transcript.text()
    assert said.count("[No checkpoint was taken: ") == 1
    assert said.endswith("done")


@pytest.mark.parametrize("is_file", [True, False])
async def test_a_remote_client_gets_the_reason_without_files_of_the_server(
    chain, project, proxy, tmp_path, is_file
):
    if is_file:
        (tmp_path / "state").write_text("no directory")
    else:
        proxy = Checkpoint(directory=project / "state")
    with withhold_details():
        async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
            session = await opened(client, project)
            await client.prompt(session, "hi")
            listed = await command(client, session, "/rewind")
            said = client.transcript.text()

    reason = "Not a directory" if is_file else f"the checkpoints would be inside of {project}"
    assert f"[No checkpoint was taken: {reason}]" in said
    assert is_file or listed == f"Not possible: {reason}"
    assert "state" not in said + listed


async def test_there_are_no_checkpoints_of_the_home_directory(chain, project, proxy, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    async with chain(proxy, FakeAgent(turns=[[call("edit")]])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        assert "No checkpoint was taken" in client.transcript.text()
    assert files(project) == {"a.txt": "one"}


async def test_checkpoints_take_at_most_the_timeout(chain, project, proxy, virtual_clock):
    virtual_clock.autojump_threshold = math.inf  # git takes real time
    async with chain(proxy, FakeAgent(turns=[[call("edit", str(n))] for n in range(2)])) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        assert "it took too long" not in client.transcript.text()
        (lock,) = (proxy.directory).glob("*/acp.lock")
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            virtual_clock.autojump_threshold = 0
            await client.prompt(session, "hi")
        assert "[No checkpoint was taken: it took too long]" in client.transcript.text()


async def test_a_change_by_a_subagent_takes_the_checkpoint_of_the_turn(chain, project, proxy):
    agent = FakeAgent()

    async def work(session):
        for parent, child in ((session, "child"), ("child", "grandchild")):
            agent.update(parent, {"sessionUpdate": "subagent_update", "sessionId": child})
        agent.update("grandchild", call("edit"))
        agent.update("child", call("edit", "2"))

    agent.turns = [[work]]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        listed = await command(client, session, "/rewind")
    assert [line.split()[-1] for line in listed.splitlines()] == ["hi"]


async def test_without_git_the_chain_does_not_start(chain, proxy, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    async with chain(proxy, FakeAgent()) as client:
        with pytest.raises(Exception, match="checkpoint needs git: install it, or remove"):
            await client.initialize()


async def test_a_permission_request_takes_the_checkpoint_of_an_unannounced_tool(
    chain, project, proxy
):
    agent = FakeAgent()

    async def ask(session):
        tool = {"toolCallId": "1", "kind": "edit"}
        params = {"sessionId": session, "toolCall": tool, "options": OPTIONS}
        await agent.endpoint.request("session/request_permission", params)
        (project / "a.txt").write_text("changed")

    agent.turns = [[ask]]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        await client.prompt(session, "/rewind 1")
    assert files(project) == {"a.txt": "one"}


async def test_a_prompt_during_a_turn_begins_no_turn_of_its_own(chain, project, proxy):
    agent = FakeAgent()

    async def steer(session):
        await client.prompt(session, "more")

    agent.turns = [[call("edit", "1"), steer], [call("edit", "2")]]
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "hi")
        listed = await command(client, session, "/rewind")
    assert [line.split()[-1] for line in listed.splitlines()] == ["hi"]


async def test_a_turn_that_the_agent_begins_has_a_checkpoint(chain, project, proxy):
    running = {"sessionUpdate": "state_update", "state": "running"}
    idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    agent = FakeAgent()
    async with chain(proxy, agent) as client:
        session = await opened(client, project, version=2)
        for id in ("1", "2"):
            for update in (running, call("edit", id), idle):
                agent.update(session, update)
        await client.prompt(session, "hi")
        await client.prompt(session, "/rewind")
        listed = client.transcript.updates()[-2]["content"][0]["text"]
    assert [line.split()[0] for line in listed.splitlines()] == ["1.", "2."]


async def test_odd_numbers_and_words_are_no_errors(chain, project, proxy):
    agent = FakeAgent(turns=[[call("edit")]])
    async with chain(proxy, agent) as client:
        session = await opened(client, project)
        await client.prompt(session, "a\0b")
        assert (await command(client, session, "/rewind")).endswith(" a b")
        said = await command(client, session, "/rewind " + "9" * 5000)
        assert said == "Write /rewind or /rewind NUMBER."
