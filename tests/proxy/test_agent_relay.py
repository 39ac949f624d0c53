"""A second agent for sessions of the client: its messages reach the client in order."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.errors import LocalProtocolError, RequestError
from conductor.proxy import Proxy, on_prompt
from conductor.proxy.agent_relay import AgentRelay
from conductor.testing import FakeAgent, FakeClient

RELAYING = '''
from conductor.proxy import Agent, Proxy, RequestError, on, on_prompt


class Other(Agent):
    @on("initialize")
    async def initialize(self, params: dict):
        self.asked = params
        return {"protocolVersion": params["protocolVersion"], "agentCapabilities": {}}

    @on("session/new")
    async def new(self, params: dict):
        return {"sessionId": "other", "_meta": {"initialize": self.asked}}

    @on("session/prompt")
    async def prompt(self, params: dict):
        words = params["prompt"][0]["text"]
        for number in range(3):
            await self.client.say("other", f"{number} ")
        if words == "fail":
            raise RequestError(-32603, "it failed")
        answer = await self.client.request("_test/ask", {"sessionId": "other"})
        await self.client.say("other", str(answer["n"]))
        return {"stopReason": "end_turn"}


class Relaying(Proxy):
    """Gives each prompt to another process of the agent."""

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        def translate(method, params):
            return {**params, "sessionId": "mine", "_meta": {"of": method}}

        async with self.open_agent(relay=translate) as agent:
            opened = await agent.request("session/new", {"cwd": "/", "mcpServers": []})
            self.opened = opened
            result = await agent.request("session/prompt", {**params, "sessionId": "other"})
        return {**result, "_meta": opened["_meta"]}
'''


@pytest.fixture
def file(tmp_path):
    """Write a chain with `Relaying`, which has these members of an entry, too."""

    def write(**members):
        (tmp_path / "relaying.py").write_text(RELAYING)
        proxy = {"use": "./relaying.py:Relaying", **members}
        chain = {"version": 1, "proxies": [proxy], "agent": {"use": "./relaying.py:Other"}}
        path = tmp_path / "chain.yaml"
        path.write_text(json.dumps(chain))
        return load(str(path))

    return write


async def test_it_gets_the_clients_name_and_its_requests_keep_their_place(file):
    async with attach_file(FakeClient, file()) as attached:
        client = attached.client
        client.handlers["_test/ask"] = lambda params: {"n": len(client.transcript.updates())}
        await client.initialize(name="editor", capabilities={"terminal": True})
        session = await client.new_session("/")
        result = await client.prompt(session, "go")
        labels = [each.label for each in client.transcript][2:]
        heard = [each.params for each in client.transcript if each.params is not None]

    assert result["stopReason"] == "end_turn"
    asked = result["_meta"]["initialize"]
    assert asked["clientInfo"]["name"] == "editor"
    assert asked["clientCapabilities"] == {"terminal": True}
    chunk = "session/update agent_message_chunk"
    assert labels == [*[chunk] * 3, "_test/ask?", chunk, "answer to session/prompt"]
    assert {each["sessionId"] for each in heard} == {"mine"}
    assert heard[0]["_meta"] == {"of": "session/update"}
    assert heard[-1]["update"]["content"]["text"] == "3"


async def test_an_error_comes_after_what_the_agent_has_said_before(file):
    async with attach_file(FakeClient, file()) as attached:
        client = attached.client
        await client.initialize()
        session = await client.new_session("/")
        with pytest.raises(RequestError, match="it failed"):
            await client.prompt(session, "fail")
        assert client.transcript.text() == "0 1 2 "


@pytest.mark.slow
@pytest.mark.parametrize("members", [{"isolate": True}, {"on_failure": "restart"}])
async def test_only_the_conductors_process_knows_the_agent(file, members):
    async with attach_file(FakeClient, file(**members)) as attached:
        client = attached.client
        await client.initialize()
        session = await client.new_session("/")
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "go")

    assert "without a source" in f"{caught.value} {caught.value.data}"


async def test_a_relay_excludes_a_session_and_handlers(chain):
    errors = []

    class P(Proxy):
        @on_prompt
        async def ask(self, session, prompt, forward):
            for options in ({"like": session}, {"handlers": {"a": print}}):
                try:
                    self.open_agent(["true"], relay=lambda _, params: params, **options)
                except LocalProtocolError as exc:
                    errors.append(str(exc))
            return await forward()

    async with chain(P(), FakeAgent()) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "go")

    assert errors == ["open_agent: `relay` excludes `like` and `handlers`"] * 2


@attrs.define(eq=False)
class SlowClient:
    """Takes the next notification when it is let."""

    turn: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(0))
    got: list = attrs.field(factory=list)

    async def notify(self, method, params):
        await self.turn.acquire()
        self.got.append(params)

    def ask(self, method, params, answered):
        self.got.append(params)
        return lambda: self.got.append("cancelled")


@attrs.define(eq=False)
class Ends:
    """Both ends of a relay: the runtime and the connection."""

    client: SlowClient = attrs.field(factory=SlowClient)
    answering: bool = False
    room: int = 0

    def made_room(self):
        self.room += 1

    async def request(self, method, params=None, *, answered=None):
        answered({})
        return {}

    def after_answer(self, function, *args):
        """As if the handler failed after that."""


def relay_between(ends):
    return AgentRelay(ends, ends, lambda method, params: params)


async def test_what_the_client_has_not_got_is_counted(nursery):
    ends = Ends()
    relay = relay_between(ends)
    nursery.start_soon(relay.run)
    for number in range(2):
        relay.on_any_notification("a", {"n": number, "text": "x" * 1000})
    await wait_all_tasks_blocked()
    before = relay.unread()
    ends.client.turn.release()
    await wait_all_tasks_blocked()

    assert before > 2000
    assert relay.unread() == before // 2
    assert ends.room == 1


async def test_nothing_waits_for_a_relay_that_has_ended(nursery):
    relay = relay_between(Ends())
    async with trio.open_nursery() as own:
        own.start_soon(relay.run)
        relay.on_any_notification("a", {})  # which the client does not take
        nursery.start_soon(relay.request, "b", {})
        await wait_all_tasks_blocked()
        own.cancel_scope.cancel()

    assert await relay.request("c", {}) == {}
    with pytest.raises(RequestError, match="is stopping"):
        await relay.on_any_request("d", {})


async def test_a_request_that_the_agent_cancels_is_cancelled_at_the_client(nursery):
    ends = Ends()
    relay = relay_between(ends)
    nursery.start_soon(relay.run)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as own:
            own.start_soon(relay.on_any_request, "a", {"n": 1})
            await wait_all_tasks_blocked()
            scope.cancel()

    assert ends.client.got == [{"n": 1}, "cancelled"]


async def test_a_handler_that_does_not_answer_holds_nothing_for_ever(nursery, virtual_clock):
    ends = Ends(answering=True)
    ends.client.turn = trio.Semaphore(9)
    relay = relay_between(ends)
    nursery.start_soon(relay.run)
    await relay.request("a", {})
    relay.on_any_notification("b", {"n": 1})
    await trio.sleep(6)

    assert ends.client.got == [{"n": 1}]
