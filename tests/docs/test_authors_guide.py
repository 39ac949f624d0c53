"""The proxies of docs/authors.md do what the page says."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
import trio
from support.doc_snippets import ROOT, snippets

from conductor.proxy import RequestError
from conductor.testing import FakeAgent

PAGE = {
    each.file_name.removesuffix(".py"): each.text
    for each in snippets(ROOT / "docs" / "authors.md")
    if each.language == "python" and each.file_name is not None
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Import a class from a code block of the page."""
    for name, source in PAGE.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in PAGE:
        monkeypatch.delitem(sys.modules, name, raising=False)

    def load(module: str, name: str) -> Any:
        return getattr(import_module(module), name)

    yield load
    for name in PAGE:
        sys.modules.pop(name, None)


def prompts(agent):
    return [
        [block["text"] for block in each.params["prompt"]]
        for each in agent.transcript.of("session/prompt", "request")
    ]


async def test_the_branch_of_the_directory(load, acp_chain, tmp_path):
    await trio.run_process(["git", "init", "-q", "-b", "feature", str(tmp_path)])
    agent = FakeAgent()
    async with acp_chain(load("branch", "Branch")(), agent, strict=True) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hello")

    assert prompts(agent) == [["Branch: feature", "hello"]]


async def test_a_directory_without_git_has_no_branch(load, acp_chain, tmp_path):
    agent = FakeAgent()
    async with acp_chain(load("branch", "Branch")(), agent, strict=True) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hello")

    assert prompts(agent) == [["hello"]]


async def test_turns_are_counted(load, acp_chain):
    agent = FakeAgent(turns=[[], [{"stopReason": "max_tokens"}]])
    async with acp_chain(load("turns", "Turns")("Italian"), agent, strict=True) as client:
        await client.initialize()
        session = await client.new_session()
        for prompt in ("one", "two", "/turns"):
            await client.prompt(session, prompt)

    assert prompts(agent) == [["Answer in Italian.", "one"], ["Answer in Italian.", "two"]]
    assert client.transcript.text() == "end_turn, max_tokens"


async def test_forward_answers_repeats_changes_and_drops(load, acp_chain):
    plans = [
        {"sessionUpdate": "plan", "entries": [{"content": str(i)} for i in range(n)]}
        for n in (0, 7)
    ]
    agent = FakeAgent(
        turns=[[RequestError(-32603, "Try again")], plans, [RequestError(-32000, "Log in")]]
    )
    async with acp_chain(load("careful", "Careful")(), agent, strict=True) as client:
        await client.initialize()
        session = await client.new_session()
        await client.prompt(session, "my password is 123")
        await client.prompt(session, "repeated")
        with pytest.raises(RequestError, match="Log in"):
            await client.prompt(session, "refused")

    assert prompts(agent) == [["repeated"], ["repeated"], ["refused"]]
    assert client.transcript.text() == "Please do not send passwords."
    shown = [each["entries"] for each in client.transcript.updates() if "entries" in each]
    assert [len(entries) for entries in shown] == [5]


async def test_handlers_of_bases_run_in_their_order(load, acp_chain):
    agent = FakeAgent()
    async with acp_chain(load("greeting", "Greeting")(), agent, strict=True) as client:
        await client.initialize()
        await client.prompt(await client.new_session(), "Hi.")

    assert prompts(agent) == [["The project is in Rome.", "Today is Monday.", "Hi."]]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_proxy_works_in_both_versions(load, acp_chain, version):
    agent = FakeAgent(
        handlers={
            "session/set_mode": lambda params: {},
            "session/set_config_option": lambda params: {"configOptions": []},
        }
    )
    select: dict[int, tuple[str, dict[str, Any]]] = {
        1: ("session/set_mode", {"modeId": "code"}),
        2: ("session/set_config_option", {"configId": "mode", "value": "code"}),
    }
    async with acp_chain(load("about", "About")(), agent, strict=True) as client:
        await client.initialize(version=version)
        session = await client.new_session()
        method, params = select[version]
        await client.request(method, {"sessionId": session, **params})
        await client.prompt(session, "/about")

    said = "The mode is code now.Protocol version"
    assert client.transcript.text().startswith(f"{said} {version}, agent ")


async def test_environment_files_are_private(load, acp_chain):
    agent = FakeAgent()
    async with acp_chain(load("no_secrets", "NoSecrets")(), agent, strict=True) as client:
        client.handlers["fs/read_text_file"] = lambda params: {"content": params["path"]}
        await client.initialize()
        session = await client.new_session()
        read = {"sessionId": session, "path": "/project/a.py"}
        assert await agent.endpoint.request("fs/read_text_file", read) == {"content": read["path"]}
        with pytest.raises(RequestError, match="Environment files are private"):
            await agent.endpoint.request("fs/read_text_file", {**read, "path": "/project/.env"})


async def test_annotated_handlers_run(load, acp_chain, capsys):
    async with acp_chain(load("typed", "Typed")(), strict=True) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "tool Search")

    assert capsys.readouterr().out == "Search completed\n"


async def test_another_agent_reviews(load, acp_chain):
    command = [sys.executable, "-m", "conductor.testing.agent"]
    async with acp_chain(load("reviewer", "Reviewer")(command), strict=True) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "/review be brief")

    assert "Review" in client.transcript.text()


async def test_the_agent_has_a_clock(load, acp_chain):
    async with acp_chain(load("clock", "Clock")(), strict=True, bridge=True) as client:
        await client.initialize()
        session = await client.new_session("/")
        await client.prompt(session, 'call Clock now {"zone": "Europe/Rome"}')

    assert "+0" in client.transcript.text()
