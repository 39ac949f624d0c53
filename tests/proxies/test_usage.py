from __future__ import annotations

from support.subagents import idle, running

from conductor.acp.sessions import UsageMeter
from conductor.proxy.slash_commands import HANDLED_KEY
from conductor.testing import FakeAgent
from proxies.usage import Usage, report

USAGE = {"totalTokens": 1500, "inputTokens": 1000, "outputTokens": 400, "thoughtTokens": 100}
UPDATE = {
    "sessionUpdate": "usage_update",
    "used": 53000,
    "size": 200000,
    "cost": {"amount": 0.045, "currency": "USD"},
}
COMMANDS = {"sessionUpdate": "available_commands_update", "availableCommands": []}
ANSWERED = {"stopReason": "end_turn", "_meta": {HANDLED_KEY: True}}
TOLD = (
    "Context: 53,000 of 200,000 tokens (26 %)\n"
    "Tokens: {} (input {}, output {}, thought {})\n"
    "Cost: 0.0450 USD"
)


async def test_the_command_reports_usage_without_asking_the_agent(chain):
    answer = {"stopReason": "end_turn", "usage": USAGE}
    agent = FakeAgent(turns=[[UPDATE, answer], [answer]])
    async with chain(Usage(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        assert await client.prompt(session, "one") == answer
        await client.prompt(session, "two")
        assert client.transcript.updates()[1:] == [UPDATE]  # the first announces the command
        assert await client.prompt(session, "/usage") == ANSWERED

        assert client.transcript.text() == TOLD.format("3,000 in 2 turns", "2,000", "800", "200")
    assert len(agent.transcript.of("session/prompt", "request")) == 2


async def test_each_session_has_its_own(chain):
    agent = FakeAgent(turns=[[{"stopReason": "end_turn", "usage": USAGE}]])
    async with chain(Usage(tokens="session"), agent) as client:
        await client.initialize()
        one, two = [await client.new_session("/work") for _ in range(2)]
        await client.prompt(one, "hi")
        for session in (one, two):
            await client.prompt(session, "/usage")

        assert client.transcript.text(one).startswith("Tokens: 1,500 in 1 turn (")
        assert client.transcript.text(two) == "The agent has not reported any usage yet."


async def test_in_version_2_usage_comes_with_the_idle_state(chain):
    running = {"sessionUpdate": "state_update", "state": "running"}
    idle = {**running, "state": "idle", "stopReason": "end_turn", "usage": USAGE}

    async def end(session):
        agent.update(session, idle)

    agent = FakeAgent(turns=[[running, UPDATE, end]])
    async with chain(Usage(), agent) as client:
        await client.initialize(version=2)
        opened = await client.request("session/new", {"cwd": "/work"})
        assert [each["name"] for each in opened["availableCommands"]] == ["usage"]
        await client.prompt(opened["sessionId"], "hi")
        await client.prompt(opened["sessionId"], "/usage")

        told = client.transcript.updates()[-2]["content"][0]["text"]
        assert told == TOLD.format("1,500 in 1 turn", "1,000", "400", "100")


def test_a_report_omits_unknown_values():
    assert report(UsageMeter(used=5, size=0)) == "The agent has not reported any usage yet."
    assert (
        report(UsageMeter(cost={"EUR": 1, "credits": 2.5}))
        == "Cost: 1.0000 EUR\nCost: 2.5000 credits"
    )


async def test_what_a_subagent_reports_is_that_of_the_session(chain):
    def work(session):
        cost = {"amount": 0.005, "currency": "USD"}
        agent.update("child", {**UPDATE, "used": 7, "cost": cost})

    agent = FakeAgent()
    ended = {"stopReason": "end_turn", "usage": USAGE}
    agent.turns.append([UPDATE, running(), work, idle(usage=USAGE), ended])
    async with chain(Usage(), agent) as client:
        await client.initialize(capabilities={"subagents": {}})
        session = await client.new_session("/work")
        await client.prompt(session, "one")
        await client.prompt(session, "/usage")
        told = TOLD.format("3,000 in 1 turn", "2,000", "800", "200")
        assert client.transcript.text(session) == told.replace("0.0450", "0.0500")


async def test_a_thousand_subagents_are_counted(chain):
    proxy = Usage()

    def work(session):
        for child in (*(f"{n}" for n in range(1001)), "x" * 1025):
            agent.update(session, {**running(), "sessionId": child})
            agent.update(child, {**UPDATE, "cost": {"amount": 1, "currency": "USD"}})

    agent = FakeAgent(turns=[[work]])
    async with chain(proxy, agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")
        assert len(proxy.subagents[session]) == 1000
        await client.prompt(session, "/usage")

    assert client.transcript.text(session) == "Cost: 1000.0000 USD"
