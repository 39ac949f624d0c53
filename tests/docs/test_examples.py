"""The proxies in docs/examples do what their docstrings say, in both versions of the protocol."""

from __future__ import annotations

import sys
from typing import Any

import httpx2
import pytest
from support.doc_snippets import ROOT
from support.no_authorities import NO_AUTHORITIES

from conductor.chainfile import ComponentSpec, load
from conductor.testing import FakeAgent, updates
from conductor.testing.agent import TestAgent

EXAMPLES = ROOT / "docs" / "examples"
UPPER = [sys.executable, "-c", "print(__import__('sys').stdin.read().upper(), end='')"]
LOWER = [sys.executable, "-c", "print(__import__('sys').stdin.read().lower(), end='')"]
CALL = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a", "kind": "read"}
DONE = updates.tool_call_update("1", "completed")


def example(name: str, **options: Any) -> ComponentSpec:
    use = f"{EXAMPLES / name}.py:{name.title()}"
    return ComponentSpec(name=name, use=use, options=options)


def turn(version: int, *steps: Any) -> tuple[Any, ...]:
    """The steps of a turn that ends after them, in version 2 with updates of its state."""
    if version == 1:
        return steps
    return (updates.state("running"), *steps, updates.state("idle", "end_turn"))


async def open_session(client, version: int, cwd: str = "/work") -> str:
    await client.initialize(version=version)
    return await client.new_session(cwd)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_entry_in_its_docstring_is_valid(path, tmp_path):
    docstring = path.read_text().split('"""')[1]
    entry = docstring[docstring.index("- use:") :]
    (tmp_path / path.name).write_text(path.read_text())
    file = tmp_path / "chain.yaml"
    file.write_text(f"version: 1\nproxies:\n{entry}\nagent:\n  use: test-agent\n")

    assert load(file).proxies[0].use.endswith(f"{path.name}:{path.stem.title()}")


@pytest.mark.parametrize("version", [1, 2])
async def test_translate(acp_chain, version):
    proxy = example("translate", to_agent=UPPER, to_user=LOWER)
    agent = FakeAgent(
        turns=[turn(version, "ONE\nT", "WO\nTH", CALL, "REE", " FOUR"), turn(version, "FIVE\n")]
    )
    async with acp_chain(proxy, agent, strict=True) as client:
        session = await open_session(client, version)
        await client.prompt(session, "hello")
        await client.prompt(session, "/translate off")
        await client.prompt(session, "bye")
        await client.transcript.wait(lambda _: "FIVE" in client.transcript.text())

    said = [each.params["prompt"] for each in agent.transcript.of("session/prompt", "request")]
    assert [blocks[-1]["text"] for blocks in said] == ["HELLO", "bye"]
    text = client.transcript.text()
    assert text == "one\ntwo\nthree fourTranslation is off.FIVE\n"
    updates = [str(update) for update in client.transcript.updates()]
    (call,) = [place for place, update in enumerate(updates) if "'tool_call'" in update]
    assert "'th'" in updates[call - 1]


@pytest.mark.parametrize("version", [1, 2])
async def test_recorder(acp_chain, tmp_path, version):
    proxy = example("recorder", directory=str(tmp_path))
    agent = FakeAgent(turns=[turn(version, "I re", "ad.", CALL, DONE, "It is ", "empty.")])
    async with acp_chain(proxy, agent, strict=True) as client:
        session = await open_session(client, version)
        await client.prompt(session, "What is in a?")
        await client.transcript.wait(lambda _: client.transcript.text().endswith("empty."))
        await client.prompt(session, "/recording")

    path = tmp_path / "session-1.md"
    assert client.transcript.text().endswith(str(path))
    assert path.read_text().split("\n\n") == [
        "# new: /work, with fake-client",
        "## What is in a?",
        "I read.",
        "- read: Read a (completed)",
        "It is empty.",
        "*end_turn; tokens: unknown*",
        "",
    ]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("choice", ["allow", "reject"])
async def test_tools(acp_chain, tmp_path, choice, version):
    (tmp_path / "a.txt").write_text("")
    proxy = example("tools", commands={"list": ["ls"]})
    asked = []

    def decide(params):
        asked.append(params.get("toolCall", params)["title"])
        return {"outcome": {"outcome": "selected", "optionId": choice}}

    async with acp_chain(proxy, TestAgent(), strict=True, bridge=True) as client:
        client.handlers["session/request_permission"] = decide
        session = await open_session(client, version, str(tmp_path))
        for prompt in (
            "call Tools list_commands {}",
            *['call Tools run_command {"name": "list"}'] * 2,
        ):
            await client.prompt_turn(session, prompt)
        await client.prompt_turn(session, 'call Tools run_command {"name": "rm"}')
        said = client.transcript.text()
        await client.prompt_turn(session, "/commands")

    assert '"list": "ls"' in said
    assert "There is no command rm" in said
    assert said.count("a.txt") == (2 if choice == "allow" else 0)
    assert said.count("The user refused.") == (0 if choice == "allow" else 2)
    assert asked == ["ls"] if choice == "allow" else ["ls", "ls"]
    runs = "list: exit status 0\nlist: exit status 0" if choice == "allow" else "None was run."
    assert client.transcript.text().endswith(runs)


@pytest.mark.parametrize("version", [1, 2])
async def test_web(acp_chain, version):
    pages: list[str] = []
    address = ""

    async def look(session):
        async with httpx2.AsyncClient(verify=NO_AUTHORITIES) as http:
            pages.append((await http.get(address)).text)

    agent = FakeAgent(
        turns=[turn(version, "<script>", CALL, look, DONE, "done"), turn(version, look)],
        handlers={"session/close": lambda params: {}},
    )
    async with acp_chain(example("web"), agent, strict=True) as client:
        session = await open_session(client, version)
        await client.prompt(session, "/web")
        address = client.transcript.text()
        await client.prompt(session, "hello")
        await client.prompt(session, "again")
        async with httpx2.AsyncClient(verify=NO_AUTHORITIES) as http:
            refused = await http.get(address[:-1])
            await client.request("session/close", {"sessionId": session})
            empty = await http.get(address)

    assert refused.status_code == 404
    assert "session-1" not in empty.text
    first, second = pages
    assert "/work, mode None: works" in first
    assert "<p>Read a: pending</p>" in first
    assert "&lt;script&gt;\n[read: Read a]\n" in first
    assert "Read a: " not in second.partition("<pre>")[0]
    assert "done\n[end_turn]\n" in second
