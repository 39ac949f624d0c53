from __future__ import annotations

import json
from pathlib import Path

import pytest

from conductor import log
from conductor.chainfile import load
from conductor.proxy import RequestError
from conductor.proxy.slash_commands import HANDLED_KEY
from conductor.testing import FakeAgent
from proxies.context import PromptContext
from tests.support.plugins import load_plugin

MARK = {HANDLED_KEY: True}


def prompts_of(agent):
    """The texts of every prompt that the agent got."""
    return [
        [block["text"] for block in heard.params["prompt"]]
        for heard in agent.transcript.of("session/prompt", "request")
    ]


async def test_a_prompt_that_fails_was_not_the_first(chain):
    agent = FakeAgent(turns=[[RequestError(-32000, "log in first")]])
    async with chain(PromptContext(text="x"), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError, match="log in first"):
            await client.prompt(session, "one")
        await client.prompt(session, "two")
        await client.prompt(session, "three")

    assert [len(texts) == 2 for texts in prompts_of(agent)] == [True, True, False]


@pytest.mark.parametrize(
    ("every", "added"),
    [(0, [True, False, False, False]), (1, [True] * 4), (2, [True, False, True, False])],
)
async def test_the_option_every_selects_the_prompts(chain, every, added):
    agent = FakeAgent()
    async with chain(PromptContext(text="x", every=every), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(4):
            await client.prompt(session, "hi")

    assert [len(texts) == 2 for texts in prompts_of(agent)] == added


async def test_files_are_found_in_the_directory_of_the_session(chain, tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "b.md").write_text("B")
    (tmp_path / "rules" / "a.md").write_text("A")
    agent = FakeAgent()
    files = ["AGENTS.md", "rules/*.md", "rules/a.md", "missing.md", "rules"]
    async with chain(PromptContext(files=files), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent)[0][0] == (
        '<context source="AGENTS.md">\nUse tabs.\n</context>\n'
        '<context source="rules/a.md">\nA\n</context>\n'
        '<context source="rules/b.md">\nB\n</context>'
    )


async def test_context_over_the_limit_is_truncated_with_a_note(chain, tmp_path):
    (tmp_path / "a").write_text("a" * 10)
    (tmp_path / "b").write_text("ü" * 10)
    (tmp_path / "c").write_text("c")
    agent = FakeAgent()
    async with chain(PromptContext(files=["a", "b", "c"], max_bytes=13), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent)[0][0] == (
        '<context source="a">\naaaaaaaaaa\n</context>\n'
        '<context source="b">\nü\n(cut off here: too large)\n</context>\n'
        '<context source="c">\n\n(cut off here: too large)\n</context>'
    )


async def test_a_command_runs_in_the_directory_of_the_session_without_a_shell(chain, tmp_path):
    (tmp_path / "x").touch()
    agent = FakeAgent()
    async with chain(PromptContext(command=["ls", "x", ";", "echo"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")
    async with chain(PromptContext(command=["ls"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert [texts[0] for texts in prompts_of(agent)] == [
        '<context source="ls">\n(exit status 2)\n</context>',
        '<context source="ls">\nx\n</context>',
    ]


async def test_a_command_that_cannot_be_run_says_why(chain, tmp_path):
    agent = FakeAgent()
    async with chain(PromptContext(command=["no-such-program", "secret"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent)[0][0] == (
        '<context source="no-such-program">\n'
        "(no-such-program cannot be run: No such file or directory)\n</context>"
    )


async def test_the_user_sees_what_was_added_and_the_agent_is_not_asked(chain):
    agent = FakeAgent()
    async with chain(PromptContext(text="Be brief."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = await client.prompt(session, "/context")
        assert answer == {"stopReason": "end_turn", "_meta": MARK}
        await client.prompt(session, "hi")
        await client.prompt(session, "/context please")

        assert client.transcript.text() == (
            'Nothing was added to your prompts yet.<context source="text">\nBe brief.\n</context>'
        )
    assert len(prompts_of(agent)) == 1


USER = "user_message_chunk"
PART = '<context source="text">\nx\n</context>'


def chunk(text, kind=USER, **members):
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **members}


def replaying(method, *updates):
    """An agent that replays these when a session is loaded, or resumed."""

    def reopen(params):
        for update in updates:
            agent.update(params["sessionId"], update)
        return {}

    agent = FakeAgent(handlers={method: reopen})
    return agent


def shown(client):
    """The updates that the client got, without announced commands."""
    return [
        update
        for update in client.transcript.updates()
        if update["sessionUpdate"] != "available_commands_update"
    ]


async def reopened(chain, agent, method="session/load", *, every=0, version=1, **params):
    """What the client hears while a session is reopened, and the prompts of the agent then."""
    async with chain(PromptContext(text="x", every=every), agent) as client:
        await client.initialize(version=version)
        await client.request(method, {"sessionId": "s", "cwd": "/", "mcpServers": [], **params})
        heard = shown(client)
        for text in ("one", "two"):
            await client.prompt("s", text)
    return heard, [len(texts) == 2 for texts in prompts_of(agent)]


async def test_a_loaded_session_gets_its_context_no_second_time_and_it_is_not_shown(chain):
    said = chunk("hello", "agent_message_chunk")
    agent = replaying("session/load", chunk(PART), chunk("hi"), said, chunk("more"), said)

    heard, added = await reopened(chain, agent)

    assert heard == [chunk("hi"), said, chunk("more"), said]
    assert added == [False, False]


@pytest.mark.parametrize("cut", [1, 5, 20, 1000])
async def test_a_prompt_replayed_in_chunks_is_shown_without_its_context(chain, cut):
    text = f"{PART}\n\nhi {PART} all"
    pieces = [chunk(text[at : at + cut]) for at in range(0, len(text), cut)]

    heard, _ = await reopened(chain, replaying("session/load", *pieces))

    assert "".join(update["content"]["text"] for update in heard) == f"hi {PART} all"


async def test_text_that_only_begins_like_context_is_shown_in_order(chain):
    said, usage = chunk("hello", "agent_message_chunk"), {"sessionUpdate": "usage_update"}
    odd = '<context source="mine">'
    agent = replaying("session/load", chunk(odd), usage, said, chunk("<"))

    heard, _ = await reopened(chain, agent)

    assert heard == [usage, chunk(odd), said, chunk("<")]


async def test_a_session_without_history_gets_context_when_it_was_loaded(chain):
    _, added = await reopened(chain, replaying("session/load"))
    assert added == [True, False]


async def test_replayed_prompts_count_for_every(chain):
    said = chunk("hello", "agent_message_chunk")
    agent = replaying("session/load", chunk("a"), chunk("b"), said, chunk("c"), said)

    _, added = await reopened(chain, agent, every=3)

    assert added == [False, True]


async def test_a_replayed_command_is_no_prompt(chain):
    said = chunk("Compacted.", "agent_message_chunk")
    agent = replaying("session/load", chunk("/compact"), said)

    _, added = await reopened(chain, agent)

    assert added == [True, False]


async def test_a_resumed_session_counts_as_begun(chain):
    _, added = await reopened(chain, replaying("session/resume"), "session/resume")
    assert added == [False, False]


async def test_version_2_replays_when_it_resumes(chain):
    message = {"sessionUpdate": "user_message", "messageId": "m1"}
    content = [{"type": "text", "text": text} for text in (PART, f"{PART}\nhi", "there")]
    cursor = {"replayFrom": {"type": "start"}}
    agent = replaying(
        "session/resume", {**message, "content": content}, chunk(PART, messageId="m2")
    )

    heard, added = await reopened(chain, agent, "session/resume", version=2, **cursor)

    shown = [{"type": "text", "text": text} for text in ("hi", "there")]
    assert heard == [{**message, "content": shown}]
    assert added == [False, False]

    _, added = await reopened(
        chain, replaying("session/resume"), "session/resume", version=2, **cursor
    )
    assert added == [True, False]


async def test_a_prompt_repeated_by_the_agent_is_shown_without_its_context(chain):
    agent = FakeAgent(turns=[[chunk(PART), chunk("hi"), chunk("hello", "agent_message_chunk")]])
    async with chain(PromptContext(text="x"), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "hi")

        assert shown(client) == [chunk("hi"), chunk("hello", "agent_message_chunk")]


async def test_a_session_reopened_in_the_same_process_keeps_its_prompt_count(chain):
    agent = FakeAgent(handlers={"session/resume": lambda p: {}})
    async with chain(PromptContext(text="x"), agent) as client:
        await client.initialize()
        unused, used = [await client.new_session("/") for _ in range(2)]
        await client.prompt(used, "one")
        for session in (unused, used):
            await client.request("session/resume", {"sessionId": session, "cwd": "/"})
            await client.prompt(session, "two")

    assert [len(texts) for texts in prompts_of(agent)] == [2, 2, 1]


@pytest.mark.parametrize("known", [True, False])
async def test_a_fork_has_the_prompts_of_its_origin(chain, known):
    agent = FakeAgent(handlers={"session/fork": lambda p: {"sessionId": "fork"}})
    async with chain(PromptContext(text="x"), agent) as client:
        await client.initialize()
        origin = await client.new_session("/") if known else "other"
        await client.request("session/fork", {"sessionId": origin, "cwd": "/"})
        await client.prompt("fork", "one")

    assert [len(texts) for texts in prompts_of(agent)] == [2 if known else 1]


async def test_missing_files_are_shown_by_the_command_and_logged_once_in_a_session(
    chain, tmp_path, capsys
):
    log.configure("info", as_json=True, lifecycle=False)
    files = ["missing.md", "rules/*.md"]
    async with chain(PromptContext(text="x", files=files, every=1), FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session(str(tmp_path))
        await client.prompt(session, "/context")
        missing = "".join(
            f"\n`{name}` matches no file in {tmp_path}, or above it in the project."
            for name in files
        )
        told = f"Nothing was added to your prompts yet.{missing}"
        assert client.transcript.text() == told
        for text in ("one", "two", "/context"):
            await client.prompt(session, text)
        assert client.transcript.text() == f"{told}{PART}{missing}"
        await client.prompt(await client.new_session(str(tmp_path)), "one")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logged = [(line["level"], line["event"], line["file"], line["session"]) for line in lines]
    assert logged == [
        ("warning", "context file not found", name, session)
        for session in ("session-1", "session-2")
        for name in files
    ]


async def test_a_restarted_proxy_adds_nothing_to_sessions_that_are_open(chain):
    proxy = PromptContext(text="x")
    agent = FakeAgent()
    async with chain(proxy, agent) as client:
        await client.initialize()
        await proxy.on_restart(["session-1"])
        await client.prompt(await client.new_session("/"), "one")

    assert prompts_of(agent) == [["one"]]


async def test_without_options_it_adds_agents_md_if_there_is_one(chain, tmp_path):
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / "AGENTS.md").write_text("Use tabs.")
    agent = FakeAgent()
    async with chain(PromptContext(), agent) as client:
        await client.initialize()
        for directory in ("with", ""):
            await client.prompt(await client.new_session(str(tmp_path / directory)), "hi")

    assert prompts_of(agent) == [
        ['<context source="AGENTS.md">\nUse tabs.\n</context>', "hi"],
        ["hi"],
    ]


async def test_the_example_of_the_docs_gives_subdirectories_the_rules_of_the_project(
    chain, tmp_path
):
    page = (Path(__file__).parents[3] / "docs" / "projects.md").read_text()
    example = page.partition("## A project's file\n\n```yaml\n")[2].partition("```")[0]
    (tmp_path / ".acp-conductor.yaml").write_text(example)
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "sub").mkdir()
    spec = load(tmp_path / ".acp-conductor.yaml").proxies[0]
    agent = FakeAgent()
    async with chain(load_plugin(spec), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path / "sub")), "hi")

    assert prompts_of(agent) == [
        ['<context source="../AGENTS.md">\nUse tabs.\n</context>', "hi"],
    ]
