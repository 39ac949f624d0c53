"""Slash commands of proxies, for any order of the chain and with duplicate names."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio

from conductor.proxy.slash_commands import (
    HANDLED_KEY,
)
from conductor.routing.proxy_meta import without_proxy_meta
from conductor.testing import FakeAgent
from proxies.budget import Budget, BudgetLimits
from proxies.context import PromptContext
from proxies.hooks import Hook, Hooks
from proxies.normalize import Normalize
from proxies.queue import Queue
from proxies.rate_limit import RateLimit
from proxies.system_prompt import SystemPrompt
from proxies.usage import Usage

MARK = {HANDLED_KEY: True}
ENDED = {"stopReason": "end_turn"}
RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}


def commands(*names):
    listed = [{"name": name, "description": "the agent's"} for name in names]
    return {"sessionUpdate": "available_commands_update", "availableCommands": listed}


def prompts_of(agent):
    """The texts of every prompt that the agent got."""
    return [
        [block["text"] for block in heard.params["prompt"]]
        for heard in agent.transcript.of("session/prompt", "request")
    ]


def turn_2(agent, **members):
    """A turn of version 2, which ends by an update."""

    async def turn(session):
        for update in (RUNNING, {**IDLE, **members}):
            agent.update(session, update)

    return [turn]


async def open_session(client, version):
    await client.initialize(version=version)
    return await client.new_session("/work")


def blocking_hook():
    return Hooks([Hook(["turn_end"], run=["sh", "-c", "echo go on >&2; exit 2"])])


@pytest.mark.parametrize("version", [1, 2])
async def test_a_command_fires_no_hooks_of_a_proxy_nearer_the_client(chain, version, tmp_path):
    fired = tmp_path / "fired"
    hooks = Hooks([Hook(["turn_end"], run=["sh", "-c", f"echo >> {fired}; exit 2"])])
    agent = FakeAgent()
    async with chain(hooks, PromptContext(text="x"), agent) as client:
        session = await open_session(client, version)
        answer = await client.prompt(session, "/context")
        assert answer["_meta"] == MARK

    assert not fired.exists()
    assert prompts_of(agent) == []


async def test_a_refusal_fires_no_hooks_either(chain):
    agent = FakeAgent()
    async with chain(blocking_hook(), Budget(BudgetLimits(turns=0)), agent) as client:
        session = await open_session(client, 1)
        assert (await client.prompt(session, "hi"))["stopReason"] == "refusal"
        assert client.transcript.text().count("Refused") == 1


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"session": {"notices": {}}}, {"sessionUpdate": "notice", "severity": "warning"}),
        ({}, {"sessionUpdate": "agent_message_chunk"}),
    ],
)
async def test_a_refusal_is_a_notice_in_a_client_that_shows_notices(chain, capabilities, expected):
    async with chain(Budget(BudgetLimits(turns=0)), FakeAgent()) as client:
        await client.initialize(capabilities=capabilities)
        await client.prompt(await client.new_session("/work"), "hi")
        (shown,) = client.transcript.updates()

    text = shown.pop("title", None) or shown.pop("content")["text"]
    assert text.startswith("Refused: the budget is used up")
    assert shown == expected


@pytest.mark.parametrize("version", [1, 2])
async def test_a_command_takes_nothing_of_a_budget_and_is_not_refused_by_it(chain, version):
    agent = FakeAgent()
    agent.turns.append(turn_2(agent) if version == 2 else ["one"])
    async with chain(Budget(BudgetLimits(turns=1)), PromptContext(text="x"), agent) as client:
        session = await open_session(client, version)
        for prompt in ("/context", "hi", "/context", "hi"):
            await client.prompt(session, prompt)

    assert [texts[-1] for texts in prompts_of(agent)] == ["hi"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_command_takes_nothing_of_a_rate(chain, virtual_clock, version):
    limit = RateLimit(prompts=1, per=timedelta(hours=1), when_full="refuse")
    agent = FakeAgent()
    async with chain(limit, PromptContext(text="x"), agent) as client:
        session = await open_session(client, version)
        for prompt in ("/context", "hi", "/context", "hi"):
            await client.prompt(session, prompt)

    assert [texts[-1] for texts in prompts_of(agent)] == ["hi"]


async def test_the_end_of_a_command_gives_no_running_turn_back(chain):
    """Version 2: a command is answered while the only turn that may run is running."""
    limit = RateLimit(at_once=1, when_full="refuse")
    agent = FakeAgent(turns=[[RUNNING]])
    async with chain(limit, PromptContext(text="x"), agent) as client:
        session = await open_session(client, 2)
        for prompt in ("hi", "/context", "again"):
            await client.prompt(session, prompt)
        # No state: the turn of the agent runs on.
        assert client.transcript.updates()[-1]["title"].startswith("Refused")

    assert [texts[-1] for texts in prompts_of(agent)] == ["hi"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_command_is_not_the_first_prompt(chain, version):
    proxies = [
        SystemPrompt(text="Be brief."),
        PromptContext(text="outer"),
        PromptContext(text="inner"),
    ]
    agent = FakeAgent()
    async with chain(*proxies, Usage(), agent) as client:
        session = await open_session(client, version)
        await client.prompt(session, "/usage")
        await client.prompt(session, "hi")

    assert prompts_of(agent) == [
        [
            '<context source="text">\ninner\n</context>',
            '<context source="text">\nouter\n</context>',
            "Be brief.",
            "hi",
        ]
    ]


@pytest.mark.parametrize("version", [1, 2])
async def test_what_comes_before_the_first_prompt_waits_while_the_agents_commands_pass(
    chain, version
):
    every = PromptContext(text="always", every=1)
    agent = FakeAgent()
    async with chain(
        every, SystemPrompt(text="Be kind."), PromptContext(text="x"), agent
    ) as client:
        session = await open_session(client, version)
        for prompt in ("/compact", "/init now", "hi", "/compact", "again"):
            await client.prompt(session, prompt)

    always, once = (f'<context source="text">\n{text}\n</context>' for text in ("always", "x"))
    assert prompts_of(agent) == [
        ["/compact"],
        ["/init now"],
        [once, "Be kind.", always, "hi"],
        ["/compact"],
        [always, "again"],
    ]


async def test_the_prompt_that_is_queued_behind_a_command_gets_the_text(chain):
    async def compact(session):
        await client.transcript.wait(lambda heard: "Prompt 1 waits" in str(heard.params))

    agent = FakeAgent(turns=[[compact]])
    async with chain(PromptContext(text="x"), Queue(), agent) as client:
        session = await open_session(client, 1)
        async with trio.open_nursery() as prompts:
            prompts.start_soon(client.prompt, session, "/compact")
            await agent.transcript.wait("session/prompt?")
            prompts.start_soon(client.prompt, session, "hi")

    assert [len(texts) for texts in prompts_of(agent)] == [1, 2]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_command_is_no_turn_in_usage(chain, version):
    agent, usage = FakeAgent(), {"totalTokens": 5}
    agent.turns.append(turn_2(agent, usage=usage) if version == 2 else [{**ENDED, "usage": usage}])
    async with chain(Usage(), PromptContext(text="x"), agent) as client:
        session = await open_session(client, version)
        for prompt in ("hi", "/context", "/usage"):
            await client.prompt(session, prompt)
        updates = [update for update in client.transcript.updates() if "content" in update]
        content = updates[-1]["content"]
        text = (content[0] if version == 2 else content)["text"]

    assert text == "Tokens: 5 in 1 turn ()"


async def test_a_command_does_not_wait_for_the_end_of_a_turn(chain, virtual_clock, monkeypatch):
    # Beside a thread the virtual clock jumps to the timeout below.
    monkeypatch.delattr(trio.to_thread, "run_sync")

    async def ask(session):
        with trio.fail_after(10):
            assert (await client.prompt(session, "/context"))["_meta"] == MARK

    agent = FakeAgent(turns=[[ask]])
    async with chain(
        Normalize(add=["one_turn_at_a_time"]), PromptContext(text="x"), agent
    ) as client:
        session = await open_session(client, 1)
        assert await client.prompt(session, "hi") == ENDED


def lists_commands(number):
    """A predicate of updates that announce so many commands."""
    return lambda heard: (
        heard.label == "session/update available_commands_update"
        and len(heard.params["update"]["availableCommands"]) == number
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_a_name_of_the_agent_is_not_taken(chain, version):
    agent = FakeAgent()
    agent.handlers["session/new"] = lambda params: {"sessionId": "s", **commands("usage")}
    async with chain(blocking_hook(), Usage(), agent) as client:
        session = await open_session(client, version)
        if version == 1:
            agent.update(session, commands("usage"))
            both = await client.transcript.wait(lists_commands(2))
            listed = both.params["update"]["availableCommands"]
        else:
            (opened,) = client.transcript.of("session/new", "answer")
            listed = opened.result["availableCommands"]
        assert [each["name"] for each in listed] == ["usage", "acp:usage"]
        await client.prompt(session, "/acp:usage")
        assert prompts_of(agent) == []
        await client.prompt(session, "/usage")

    assert prompts_of(agent)[0][-1] == "/usage"


async def test_a_name_becomes_free_again(chain):
    agent = FakeAgent(turns=[[commands("context")], [commands()]])
    async with chain(PromptContext(text="x"), agent) as client:
        session = await open_session(client, 1)
        for prompt in ("one", "two", "/context"):
            await client.prompt(session, prompt)

    assert [texts[-1] for texts in prompts_of(agent)] == ["one", "two"]


async def test_two_proxies_of_one_kind_have_two_names(chain):
    agent = FakeAgent(turns=[[commands("context")]])
    async with chain(PromptContext(text="outer"), PromptContext(text="inner"), agent) as client:
        session = await open_session(client, 1)
        await client.prompt(session, "hi")
        await client.prompt(session, "/acp:context")
        await client.prompt(session, "/acp:context-2")
        lists = [
            update["availableCommands"]
            for update in client.transcript.updates()
            if "availableCommands" in update
        ]
        names = [each["name"] for each in lists[-1]]
        assert names == ["context", "acp:context", "acp:context-2"]
        assert client.transcript.text() == (
            '<context source="text">\ninner\n</context><context source="text">\nouter\n</context>'
        )


@pytest.mark.parametrize("odd", [True, "context", 3, [3, None], {"context": 1}])
async def test_a_mark_that_is_none_is_ignored(chain, odd):
    def initialize(params):
        return {"protocolVersion": 1, "agentCapabilities": {}, "_meta": {HANDLED_KEY: odd}}

    agent = FakeAgent(handlers={"initialize": initialize})
    async with chain(Budget(BudgetLimits(turns=1)), Usage(), agent) as client:
        assert (await client.initialize())["_meta"] == {HANDLED_KEY: ["usage"]}


ESCAPED = "\\u0061cp-conductor\\/handled"
"""The name of the mark, as JSON may write it, too."""


@pytest.mark.parametrize("version", [1, 2])
async def test_an_agent_that_marks_its_answers_is_counted_and_fires_hooks(chain, version):
    marked = {**ENDED, "_meta": {**MARK, "own": 1}}
    turns = [[marked] if version == 1 else turn_2(None, _meta=MARK) for _ in range(3)]
    agent = FakeAgent(turns=turns)
    if version == 2:
        agent.turns[:] = [turn_2(agent, _meta=MARK) for _ in range(3)]
    async with chain(blocking_hook(), Budget(BudgetLimits(turns=2)), agent) as client:
        session = await open_session(client, version)
        answer = await client.prompt(session, "go")
        if version == 1:
            assert answer == {"stopReason": "refusal", "_meta": MARK}
        else:
            with trio.fail_after(10):
                await agent.transcript.wait("session/prompt?", count=2)

    assert prompts_of(agent) == [["go"], ["go on"]]


async def test_an_agent_that_lists_or_marks_its_commands_is_counted(chain):
    about = {"protocolVersion": 1, "_meta": {HANDLED_KEY: ["work"]}}
    update = commands("more")
    update["availableCommands"][0]["_meta"] = MARK
    agent = FakeAgent(handlers={"initialize": lambda params: about})
    agent.turns += [[update], [], []]
    async with chain(Budget(BudgetLimits(turns=2)), agent) as client:
        session = await open_session(client, 1)
        for prompt in ("/work", "/more"):
            assert await client.prompt(session, prompt) == ENDED
        assert (await client.prompt(session, "/more"))["stopReason"] == "refusal"

    assert client.transcript.updates()[0] == commands("more") | {
        "availableCommands": [{"name": "more", "description": "the agent's", "_meta": {}}]
    }


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ('{"a": 1.50, "_meta": {"x": 2, "%s": true}}', '{"a":1.50,"_meta":{"x":2}}'),
        ('{"update": {"_meta": {"%s": true}}}', '{"update":{"_meta":{}}}'),
        (
            '{"update": {"availableCommands": [{"name": "a"}, {"_meta": {"%s": 1}}]}}',
            '{"update":{"availableCommands":[{"name": "a"},{"_meta":{}}]}}',
        ),
        ('{"_meta": {"%s": 1}, "_meta": {}}', '{"_meta": {"%s": 1}, "_meta": {}}'),
        ('{"rawInput": {"_meta": {"%s": 1}}}', '{"rawInput": {"_meta": {"%s": 1}}}'),
        ('{"_meta": "%s"}', '{"_meta": "%s"}'),
    ],
)
@pytest.mark.parametrize("name", [HANDLED_KEY, ESCAPED])
def test_marks_are_removed_where_they_count(sent, left, name):
    told = without_proxy_meta(sent.replace("%s", name).encode())
    assert told == left.replace("%s", name).encode()


@pytest.mark.parametrize("name", [HANDLED_KEY, ESCAPED])
@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ('{"_meta":{"%s":1}%f}', '{"_meta":{}%f}'),
        ('{"update":{"update":{"_meta":{"%s":1}%f}}}', '{"update":{"update":{"_meta":{}%f}}}'),
        ('{"availableCommands":[{"_meta":{"%s":1}}]%f}', '{"availableCommands":[{"_meta":{}}]%f}'),
        ('{"x":"\\ud83d","_meta":{"%s":1}%f}', '{"x":"\\ud83d","_meta":{}%f}'),
        (
            '{"availableCommands":["\\ud83d",{"_meta":{"%s":1}}]%f}',
            '{"availableCommands":["\\ud83d",{"_meta":{}}]%f}',
        ),
        ('{"update":[{"%s":1}],"_meta":{"%s":1}%f}', '{"update":[{"%s":1}],"_meta":{}%f}'),
        ('{"rawInput":{"_meta":{"%s":1}}%f}', '{"rawInput":{"_meta":{"%s":1}}%f}'),
    ],
)
def test_marks_are_removed_from_large_updates(sent, left, name):
    filler = ',"%s"' % ("-" * 100_000) + (":1" if sent[0] == "{" else "")
    sent, left = (each.replace("%s", name).replace("%f", filler) for each in (sent, left))
    assert without_proxy_meta(sent.encode()) == left.encode()


async def test_marks_are_removed_from_updates_that_come_together(chain):
    """They are sent on as a run if nothing is in them."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}}
    agent = FakeAgent(turns=[[update, {**update, "_meta": MARK}, {**update, "_meta": {"a": 1}}]])
    async with chain(agent) as client:
        await client.prompt(await open_session(client, 1), "go")

    assert client.transcript.updates() == [
        update,
        {**update, "_meta": {}},
        {**update, "_meta": {"a": 1}},
    ]
