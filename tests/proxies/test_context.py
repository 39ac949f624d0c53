from __future__ import annotations

import pytest

from conductor.testing import FakeAgent
from proxies.context import Context


def prompts_of(agent):
    """The texts of every prompt that the agent got."""
    return [
        [block["text"] for block in heard.params["prompt"]]
        for heard in agent.transcript.of("session/prompt", "request")
    ]


async def test_text_comes_before_the_first_prompt_only(chain):
    agent = FakeAgent()
    async with chain(Context(text="Be brief."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        await client.prompt(session, "two")

    assert prompts_of(agent) == [
        ['<context source="text">\nBe brief.\n</context>', "one"],
        ["two"],
    ]


@pytest.mark.parametrize(
    ("every", "added"),
    [(0, [True, False, False, False]), (1, [True] * 4), (2, [True, False, True, False])],
)
async def test_every_says_which_prompts_get_it(chain, every, added):
    agent = FakeAgent()
    async with chain(Context(text="x", every=every), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(4):
            await client.prompt(session, "hi")

    assert [len(texts) == 2 for texts in prompts_of(agent)] == added


async def test_each_session_has_a_first_prompt(chain):
    agent = FakeAgent()
    async with chain(Context(text="x"), agent) as client:
        await client.initialize()
        for _ in range(2):
            await client.prompt(await client.new_session("/work"), "hi")

    assert [len(texts) for texts in prompts_of(agent)] == [2, 2]


async def test_files_are_found_in_the_directory_of_the_session(chain, tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "b.md").write_text("B")
    (tmp_path / "rules" / "a.md").write_text("A")
    agent = FakeAgent()
    files = ["AGENTS.md", "rules/*.md", "rules/a.md", "missing.md", "rules"]
    async with chain(Context(files=files), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent)[0][0] == (
        '<context source="AGENTS.md">\nUse tabs.\n</context>\n'
        '<context source="rules/a.md">\nA\n</context>\n'
        '<context source="rules/b.md">\nB\n</context>'
    )


async def test_what_is_too_large_is_cut_off_and_says_so(chain, tmp_path):
    (tmp_path / "a").write_text("a" * 10)
    (tmp_path / "b").write_text("ü" * 10)
    (tmp_path / "c").write_text("c")
    agent = FakeAgent()
    async with chain(Context(files=["a", "b", "c"], max_bytes=13), agent) as client:
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
    async with chain(Context(command=["ls", "x", ";", "echo"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")
    async with chain(Context(command=["ls"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert [texts[0] for texts in prompts_of(agent)] == [
        '<context source="ls">\n(exit status 2)\n</context>',
        '<context source="ls">\nx\n</context>',
    ]


async def test_a_command_that_cannot_be_run_says_why(chain, tmp_path):
    agent = FakeAgent()
    async with chain(Context(command=["no-such-program", "secret"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent)[0][0] == (
        '<context source="no-such-program">\n'
        "(no-such-program cannot be run: No such file or directory)\n</context>"
    )


async def test_nothing_is_added_when_there_is_nothing(chain, tmp_path):
    agent = FakeAgent()
    async with chain(Context(files=["AGENTS.md"], command=["true"]), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session(str(tmp_path)), "hi")

    assert prompts_of(agent) == [["hi"]]


async def test_the_user_sees_what_was_added_and_the_agent_is_not_asked(chain):
    agent = FakeAgent()
    async with chain(Context(text="Be brief."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "/context") == {"stopReason": "end_turn"}
        await client.prompt(session, "hi")
        await client.prompt(session, "/context please")

        assert client.transcript.text() == (
            'Nothing was added to your prompts yet.<context source="text">\nBe brief.\n</context>'
        )
    assert len(prompts_of(agent)) == 1


async def test_the_command_is_advertised_beside_those_of_the_agent(chain):
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "a"}]}
    async with chain(Context(text="x"), FakeAgent(turns=[[commands, "hi"]])) as client:
        await client.initialize()
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert opened == {"sessionId": "session-1"}
        await client.prompt("session-1", "hi")

        assert client.transcript.updates()[0] == {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [
                {"name": "a"},
                {"name": "context", "description": "Show what was added to your prompts"},
            ],
        }


async def test_version_2_has_its_own_way_to_advertise_and_to_answer(chain):
    async with chain(Context(text="x"), FakeAgent()) as client:
        await client.initialize(version=2)
        opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
        assert opened["availableCommands"][-1]["name"] == "context"
        answer = await client.prompt(opened["sessionId"], "/context")

        updates = client.transcript.updates()
        assert [update["sessionUpdate"] for update in updates] == [
            "user_message",
            "state_update",
            "agent_message",
            "state_update",
        ]
        assert answer == {"messageId": updates[0]["messageId"]}
        assert updates[-1]["stopReason"] == "end_turn"


def test_options_that_add_nothing_are_refused():
    with pytest.raises(ValueError, match="give `text`, `files` or `command`"):
        Context()
