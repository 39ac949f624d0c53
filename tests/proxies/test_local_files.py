from __future__ import annotations

import pytest

from conductor.errors import RequestError
from conductor.testing import FakeAgent
from proxies.local_files import LocalFiles
from proxies.permissions import Permissions
from proxies.permissions.rules import Rule
from proxies.v1_v2 import V1V2

READ, WRITE = "fs/read_text_file", "fs/write_text_file"
NONE = {}


async def open_session(client, directory, capabilities=NONE, **params):
    await client.initialize(capabilities=capabilities)
    return await client.new_session(str(directory), **params)


def announced(agent):
    return agent.transcript.of("initialize", "request")[0].params["clientCapabilities"]


async def asked(agent, method, session, path, **params):
    """What the agent learns when it asks for a file."""
    try:
        return await agent.endpoint.request(
            method, {"sessionId": session, "path": str(path), **params}
        )
    except RequestError as exc:
        return f"{exc.code} {exc.message}"


async def test_an_agent_reads_and_writes_in_the_directory_of_the_session(chain, project):
    agent = FakeAgent()
    async with chain(LocalFiles(), agent) as client:
        session = await open_session(client, project)

        assert announced(agent) == {"fs": {"readTextFile": True, "writeTextFile": True}}
        assert await asked(agent, READ, session, project / "a.txt") == {"content": "one"}
        assert await asked(agent, WRITE, session, project / "b.txt", content="x\ny\n") == {}
        part = await asked(agent, READ, session, project / "b.txt", line=2, limit=1)
        assert part == {"content": "y\n"}

    assert client.transcript.of(READ) == client.transcript.of(WRITE) == []


async def test_additional_directories_count_and_others_do_not(chain, project, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/b.txt").write_text("two")
    (tmp_path / "c.txt").write_text("three")
    agent = FakeAgent()
    async with chain(LocalFiles(), agent) as client:
        await client.initialize(capabilities={})
        params = {"cwd": str(project), "mcpServers": []}
        params["additionalDirectories"] = [str(tmp_path / "more")]
        session = (await client.request("session/new", params))["sessionId"]

        assert await asked(agent, READ, session, tmp_path / "more/b.txt") == {"content": "two"}
        refused = await asked(agent, READ, session, tmp_path / "c.txt")
    assert refused == (
        f"-32602 local_files: `{tmp_path}/c.txt` is not in the directories of the session: "
        f"{project}, {tmp_path}/more"
    )


async def test_a_client_keeps_what_it_has(chain, project):
    agent = FakeAgent()
    async with chain(LocalFiles(), agent) as client:
        client.handlers[READ] = lambda params: {"content": "not saved yet", "_meta": {"a": 1}}
        has = {"fs": {"readTextFile": True, "_meta": {"b": 2}}, "terminal": True}
        session = await open_session(client, project, has)

        fs = {"readTextFile": True, "writeTextFile": True, "_meta": {"b": 2}}
        assert announced(agent) == {"fs": fs, "terminal": True}
        read = await asked(agent, READ, session, project / "a.txt")
        assert read == {"content": "not saved yet", "_meta": {"a": 1}}
        assert await asked(agent, WRITE, session, project / "b.txt", content="x") == {}


async def test_what_the_chain_does_not_allow_is_not_announced(chain, project):
    agent = FakeAgent()
    async with chain(LocalFiles(write=False), agent) as client:
        session = await open_session(client, project)

        assert announced(agent) == {"fs": {"readTextFile": True}}
        refused = await asked(agent, WRITE, session, project / "a.txt", content="x")
    assert refused.startswith("-32601")
    assert (project / "a.txt").read_text() == "one"


async def test_neither_an_unknown_session_nor_a_subagent_widens_the_directories(chain, project):
    (project.parent / "b.txt").write_text("two")
    agent = FakeAgent()
    async with chain(LocalFiles(), agent) as client:
        session = await open_session(client, project)
        for parent, id in ((session, "child"), ("x", "y"), ("y", "x")):
            agent.update(parent, {"sessionUpdate": "subagent_update", "sessionId": id, "cwd": "/"})

        assert await asked(agent, READ, "child", project / "a.txt") == {"content": "one"}
        for id in ("child", "x", "y", "unknown"):
            refused = await asked(agent, READ, id, project.parent / "b.txt")
            assert "not in the directories of the session" in refused


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"path": 1}, "`path` is not a text"),
        ({"path": "/a", "line": -1}, "`line` is not a number of lines"),
        ({"path": "/a", "limit": True}, "`limit` is not a number of lines"),
        ({"path": "/a", "sessionId": None}, "`sessionId` is not a text"),
    ],
)
async def test_malformed_params_are_an_error_that_names_the_proxy(chain, project, params, problem):
    agent = FakeAgent()
    async with chain(LocalFiles(), agent) as client:
        session = await open_session(client, project)
        with pytest.raises(RequestError, match=f"local_files: {problem}") as caught:
            await agent.endpoint.request(READ, {"sessionId": session, **params})
    assert caught.value.code == -32602


async def test_an_agent_of_version_1_gets_files_with_a_client_of_version_2(chain, project):
    agent = FakeAgent()
    async with chain(V1V2(agent_version=1), LocalFiles(), agent) as client:
        await client.initialize(version=2)
        session = await client.new_session(str(project))
        assert await asked(agent, READ, session, project / "a.txt") == {"content": "one"}


@pytest.mark.parametrize("option", ["allow", "reject"])
async def test_the_user_is_asked_before_a_write_if_the_chain_says_so(chain, project, option):
    agent = FakeAgent()
    async with chain(LocalFiles(ask=True), agent) as client:
        client.handlers["session/request_permission"] = lambda params: {
            "outcome": {"outcome": "selected", "optionId": option}
        }
        session = await open_session(client, project)
        written = await asked(agent, WRITE, session, project / "a.txt", content="two")

    (question,) = client.transcript.of("session/request_permission", "request")
    call = question.params["toolCall"]
    assert (call["title"], call["kind"]) == (f"Write {project}/a.txt", "edit")
    if option == "allow":
        assert written == {}
        assert (project / "a.txt").read_text() == "two"
    else:
        refusal = f"-32600 local_files: the user refuses to write `{project}/a.txt`"
        assert written == refusal
        assert (project / "a.txt").read_text() == "one"


async def test_what_would_be_refused_is_not_asked(chain, project):
    agent = FakeAgent()
    async with chain(LocalFiles(ask=True), agent) as client:
        session = await open_session(client, project)
        assert (await asked(agent, WRITE, session, "/etc/x", content="")).startswith("-32602")
    assert client.transcript.of("session/request_permission") == []


async def test_rules_of_permissions_before_it_answer_its_questions(chain, project):
    (project / "src").mkdir()
    rules = Permissions(
        rules=[Rule(action="allow_once", kind=["edit"], path=["src/**"])], default="deny"
    )
    agent = FakeAgent()
    async with chain(rules, LocalFiles(ask=True), agent) as client:
        session = await open_session(client, project)
        assert await asked(agent, WRITE, session, project / "src/b.txt", content="x") == {}
        refused = await asked(agent, WRITE, session, project / "a.txt", content="x")

    assert "the user refuses" in refused
    assert client.transcript.of("session/request_permission") == []


async def test_a_client_that_cannot_ask_is_an_error_that_names_the_proxy(chain, project):
    agent = FakeAgent()
    async with chain(LocalFiles(ask=True), agent) as client:
        del client.handlers["session/request_permission"]
        session = await open_session(client, project)
        refused = await asked(agent, WRITE, session, project / "a.txt", content="x")
    assert "local_files: the client did not ask the user" in refused
