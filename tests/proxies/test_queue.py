from __future__ import annotations

import pytest
import trio
import trio.testing

from conductor.proxy import Proxy, RequestError, on_prompt
from conductor.proxy.slash_commands import HANDLED_KEY
from conductor.testing import FakeAgent
from proxies.queue import Queue
from proxies.usage import Usage

CANCELLED = {"stopReason": "cancelled", "_meta": {HANDLED_KEY: True}}
RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
ANNOUNCED = {"_meta": {"claudeCode": {"promptQueueing": True}}}


def agent_that_waits(**options):
    """An agent whose first turn goes on until `agent.go_on` is set."""
    agent = FakeAgent(**options)
    agent.go_on = trio.Event()

    async def wait(session):
        await agent.go_on.wait()

    agent.turns = [["one ", wait, "end of one "], ["two "], ["three "]]
    return agent


def agent_of_version_2(**options):
    """Its turns begin with the answer and end when the test calls `end`."""
    agent = FakeAgent(turns=[[RUNNING]] * 4, **options)
    agent.end = lambda session: agent.update(session, IDLE)
    return agent


async def opened(client, version=1):
    await client.initialize(version=version)
    opened = await client.request("session/new", {"cwd": "/work", "mcpServers": []})
    return opened["sessionId"]


def prompts(agent):
    found = agent.transcript.of("session/prompt", "request")
    return [each.params["prompt"][0]["text"] for each in found]


class Prompts:
    """Prompts sent at once, each with its answer or error."""

    def __init__(self, nursery, client, session):
        self.nursery, self.client, self.session = nursery, client, session
        self.answers = {}

    async def send(self, *texts):
        """Send them in this order, and wait until nothing happens any more."""
        for text in texts:
            self.nursery.start_soon(self._send, text)
            await trio.testing.wait_all_tasks_blocked()

    async def _send(self, text):
        assert text not in self.answers
        try:
            answer = await self.client.prompt(self.session, text)
        except RequestError as exc:
            answer = exc.code
        assert text not in self.answers, "one answer per prompt"
        self.answers[text] = answer


async def test_the_command_shows_and_drops_what_waits(chain):
    agent = agent_that_waits()
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        sent = Prompts(nursery, client, session)
        await sent.send("1", "Fix the tests", "word " * 30)
        before = client.transcript.text()
        for command in ("/queue", "/queue drop 1", "/queue drop 1", "/queue drop", "/queue"):
            await client.prompt(session, command)
        shown = client.transcript.text().removeprefix(before)
        words = "word " * 11 + "…"
        assert shown == (
            f"1. Fix the tests\n2. {words}"
            "Dropped 1 prompt."
            "No prompt 1 waits."
            "Write /queue, /queue drop NUMBER or drop all."
            f"2. {words}"
        )
        assert sent.answers == {"Fix the tests": CANCELLED}

        await client.prompt(session, "/queue drop all")
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent.answers) == 2
        agent.go_on.set()
    assert prompts(agent) == ["1"]
    assert sent.answers["1"] == {"stopReason": "end_turn"}


@pytest.mark.parametrize(("cancel", "reached"), [("all", ["1"]), ("running", ["1", "2"])])
async def test_a_cancel_of_the_turn_drops_what_waits_unless_it_is_kept(chain, cancel, reached):
    agent = agent_that_waits()
    agent.handlers["session/cancel"] = lambda params: agent.go_on.set()
    async with chain(Queue(cancel=cancel), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        client.cancel(sent.session)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(sent.answers) == ["1", "2"]
    assert prompts(agent) == reached
    assert (sent.answers["2"] == CANCELLED) == (cancel == "all")


async def test_prompts_over_the_limit_are_refused(chain):
    agent = agent_that_waits()
    async with chain(Queue(limit=1), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2", "3")
        assert sent.answers == {"3": {**CANCELLED, "stopReason": "refusal"}}
        assert client.transcript.text().endswith("Refused: 1 prompts wait already (/queue).")
        agent.go_on.set()
    assert prompts(agent) == ["1", "2"]


@pytest.mark.parametrize(("capabilities", "reached"), [({}, ["1"]), (ANNOUNCED, ["1", "2"])])
async def test_steering_needs_an_agent_that_announces_it(chain, capabilities, reached):
    agent = agent_that_waits(capabilities=capabilities)
    proxy = Queue(when_busy="steer")
    async with chain(proxy, agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        assert prompts(agent) == reached
        agent.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent.answers) == 2


async def test_a_steered_prompt_does_not_end_the_turn_for_what_waits(chain):
    agent = agent_that_waits(capabilities=ANNOUNCED)
    proxy = Queue(when_busy="steer")
    async with chain(proxy, agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        proxy.when_busy = "queue"
        await sent.send("3")
        assert prompts(agent) == ["1", "2"]
        agent.go_on.set()
    assert prompts(agent) == ["1", "2", "3"]


async def test_with_refuse_a_prompt_during_a_turn_is_refused(chain):
    agent = agent_that_waits()
    async with chain(Queue(when_busy="refuse"), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        assert sent.answers == {"2": {**CANCELLED, "stopReason": "refusal"}}
        agent.go_on.set()
    assert prompts(agent) == ["1"]


async def test_a_failed_turn_lets_the_next_one_start(chain):
    agent = agent_that_waits()
    agent.turns[0] = [*agent.turns[0], RequestError(-32000, "no")]
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        agent.go_on.set()
    assert sent.answers == {"1": -32000, "2": {"stopReason": "end_turn"}}


async def test_the_end_of_a_session_drops_what_waits(chain):
    agent = agent_that_waits(handlers={"session/close": lambda params: {}})
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client))
        await sent.send("1", "2")
        await client.request("session/close", {"sessionId": sent.session})
        await trio.testing.wait_all_tasks_blocked()
        assert sent.answers == {"2": CANCELLED}
        agent.go_on.set()


async def test_in_version_2_a_prompt_waits_until_the_agent_is_idle(chain):
    agent = agent_of_version_2()
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client, version=2))
        await sent.send("1", "2", "3")
        assert (prompts(agent), list(sent.answers)) == (["1"], ["1"])
        (notice,) = [
            each["title"]
            for each in client.transcript.updates()
            if each["sessionUpdate"] == "notice" and "1" in each["title"]
        ]
        assert notice == "Prompt 1 waits until the running turn has ended"

        agent.end(sent.session)
        await trio.testing.wait_all_tasks_blocked()
        assert (prompts(agent), list(sent.answers)) == (["1", "2"], ["1", "2"])
        await client.prompt(sent.session, "/queue drop all")
        await trio.testing.wait_all_tasks_blocked()
        assert sent.answers["3"] == -32800
        states = [u["state"] for u in client.transcript.updates() if u.get("state")]
        assert states == ["running", "idle", "running"]  # the command is part of no turn


async def test_in_version_2_a_turn_may_end_before_its_prompt_is_answered(chain):
    async def end(session):
        agent.update(session, IDLE)

    agent = FakeAgent(turns=[[RUNNING, end], [RUNNING, end]])
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client, version=2))
        await sent.send("1", "2")
        assert list(sent.answers) == ["1", "2"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_prompt_that_a_proxy_answers_is_no_turn(chain, version):
    async with (
        chain(Queue(), Usage(), FakeAgent()) as client,
        trio.open_nursery() as nursery,
    ):
        sent = Prompts(nursery, client, await opened(client, version=version))
        await sent.send("/usage", "/queue", "/usage please")
        assert list(sent.answers) == ["/usage", "/queue", "/usage please"]


async def test_a_waiting_prompt_whose_request_is_cancelled_never_reaches_the_agent(chain):
    agent = agent_that_waits()
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        sent = Prompts(nursery, client, session)
        await sent.send("1")
        async with trio.open_nursery() as impatient:
            impatient.start_soon(client.prompt, session, "2")
            await trio.testing.wait_all_tasks_blocked()
            impatient.cancel_scope.cancel()
        await sent.send("3")
        agent.go_on.set()
    assert prompts(agent) == ["1", "3"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_prompt_that_a_later_proxy_refuses_keeps_no_other_waiting(chain, version):
    class Refuse(Proxy):
        @on_prompt
        async def prompt(self, session, prompt, forward):
            return await prompt.answer("no", stop_reason="refusal")

    async with chain(Queue(), Refuse()) as client, trio.open_nursery() as nursery:
        sent = Prompts(nursery, client, await opened(client, version=version))
        await sent.send("1", "2")
        assert list(sent.answers) == ["1", "2"]


# -- an agent that is not ready yet ----------------------------------------------------------------

BUSY = [
    RequestError(-32600, "Prompt already in progress"),  # fx, kiro
    RequestError(-32603, "A turn is already running"),  # vibe
    RequestError(
        -32603, "Internal error", {"details": "ACP prompt already in progress for this session"}
    ),
    RequestError(-32603, "Internal error: Agent is already processing. Use steer() or followUp()"),
    RequestError(-32603, "Agent error", {"reason": "session_busy", "hint": "wait"}),
    RequestError(-32603, "Session 0f3a-11 is already processing a prompt"),
    RequestError(-32603, "Session is busy"),
]
OTHERS = [
    RequestError(-32603, "The model is overloaded: the server is busy, try again"),
    RequestError(-32603, "Rate limited"),
    RequestError(-32603, "MCP server failed: port already in use"),
]


def agent_that_refuses(error, times, *, output=False):
    """An agent that refuses its second prompt so often."""
    agent = FakeAgent(turns=[["one "], ["two "]])
    answer, refused = agent.handlers["session/prompt"], []

    async def prompt(params):
        if params["prompt"][0]["text"] == "one" or len(refused) >= times:
            return await answer(params)
        refused.append(trio.current_time())
        if output:
            agent.update(params["sessionId"], CHUNK)
        raise error

    agent.handlers["session/prompt"] = prompt
    agent.refused = refused
    return agent


CHUNK = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "begun"}}


@pytest.mark.parametrize("error", BUSY, ids=str)
async def test_a_prompt_that_the_agent_is_not_ready_for_is_sent_again(chain, error, autojump_clock):
    agent = agent_that_refuses(error, 3)
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        sent = Prompts(nursery, client, session)
        await sent.send("one", "two")
        await trio.sleep(10)

    assert sent.answers == {"one": {"stopReason": "end_turn"}, "two": {"stopReason": "end_turn"}}
    assert client.transcript.text().endswith("two ")
    assert prompts(agent) == ["one", "two", "two", "two", "two"]
    assert agent.refused[-1] - agent.refused[0] < 1


async def test_after_a_few_attempts_the_client_gets_the_refusal(chain, autojump_clock):
    agent = agent_that_refuses(BUSY[0], 100)
    async with chain(Queue(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "one")
        with pytest.raises(RequestError, match="already in progress"):
            await client.prompt(session, "two")

    assert len(agent.refused) == 5
    assert agent.refused[-1] - agent.refused[0] < 5


@pytest.mark.parametrize(
    ("error", "output"), [(BUSY[0], True), *((error, False) for error in OTHERS)], ids=str
)
async def test_a_prompt_that_may_have_run_is_not_sent_again(chain, error, output, autojump_clock):
    agent = agent_that_refuses(error, 1, output=output)
    async with chain(Queue(), agent) as client:
        session = await opened(client)
        await client.prompt(session, "one")
        with pytest.raises(RequestError):
            await client.prompt(session, "two")

    assert prompts(agent) == ["one", "two"]


async def test_a_cancelled_prompt_is_not_sent_again(chain, autojump_clock):
    agent = agent_that_refuses(BUSY[0], 100)
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        sent = Prompts(nursery, client, session)
        await sent.send("one")
        nursery.start_soon(sent._send, "two")
        await trio.sleep(0.7)
        before = len(agent.refused)
        client.cancel(session)
        await trio.sleep(10)

    assert sent.answers["two"]["stopReason"] == "cancelled"
    assert len(agent.refused) == before == 3


async def test_prompts_keep_their_order_behind_one_that_is_sent_again(chain, autojump_clock):
    agent = agent_that_refuses(BUSY[0], 2)
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client)
        sent = Prompts(nursery, client, session)
        await sent.send("one")
        nursery.start_soon(sent._send, "two")
        await trio.sleep(0.05)
        nursery.start_soon(sent._send, "three")
        await trio.sleep(10)

    assert prompts(agent) == ["one", "two", "two", "two", "three"]


async def test_in_version_2_a_prompt_is_sent_again_too_and_the_next_waits(chain, autojump_clock):
    agent = agent_of_version_2()
    answer, refused = agent.handlers["session/prompt"], []

    async def prompt(params):
        if params["prompt"][0]["text"] == "two" and len(refused) < 2:
            refused.append(params)
            raise BUSY[0]
        return await answer(params)

    agent.handlers["session/prompt"] = prompt
    async with chain(Queue(), agent) as client, trio.open_nursery() as nursery:
        session = await opened(client, 2)
        sent = Prompts(nursery, client, session)
        await sent.send("one", "two", "three")
        agent.end(session)
        await trio.sleep(0.05)
        assert prompts(agent) == ["one", "two"]
        agent.update(session, RUNNING)  # work of the agent's own, for which it refuses prompts
        agent.end(session)
        await trio.sleep(10)
        assert prompts(agent) == ["one", "two", "two", "two"]
        agent.end(session)
        await trio.sleep(10)
        assert prompts(agent) == ["one", "two", "two", "two", "three"]
