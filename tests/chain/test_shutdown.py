"""A plugin that does not end is given up `stop_timeout` after the stop began (virtual clock)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from conductor import log
from conductor.background_tasks import background_tasks
from conductor.chain.client_end import ClientEnd
from conductor.errors import RequestError
from conductor.proxy import Proxy, on
from conductor.testing import FakeAgent, open_chain
from conductor.transport.io_loop import Flusher

STOP_TIMEOUT = 5.0
"""Seconds: the default. The last one of them is for the clean-up."""
FILE = __file__


class Stuck(Proxy):
    """Its handler, or a task of its own, is shielded until `gate` is set."""

    def __init__(self, where):
        self.where = where
        self.gate = trio.Event()

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        if self.where == "task":
            self.start_soon(self.hold)
        else:
            await self.hold()
        return await forward()

    async def hold(self):
        with trio.CancelScope(shield=True):
            await self.gate.wait()


class Prompted:
    """A chain that handles a prompt."""

    def __init__(self, client):
        self.client = client
        self.answer = None

    async def prompt(self, session):
        try:
            self.answer = await self.client.prompt(session, "hello")
        except RequestError as exc:
            self.answer = exc.message

    async def seconds_to_end(self, how):
        begin = trio.current_time()
        if how == "EOF":
            self.client.close()
        else:
            self.client.attached.chain.stop()
        await self.client.attached.ended.wait()
        return trio.current_time() - begin


@asynccontextmanager
async def prompted(*parts):
    """A chain whose plugins may outlive it."""
    async with (
        background_tasks() as plugins,
        background_tasks() as tasks,
        open_chain(*parts, stop_timeout=STOP_TIMEOUT) as client,
    ):
        client.attached.chain.plugin_nursery = plugins
        await client.initialize()
        chain = Prompted(client)
        tasks.start_soon(chain.prompt, await client.new_session("/"))
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield chain
        finally:
            for part in parts:
                if isinstance(part, Stuck):
                    part.gate.set()


@pytest.fixture
def errors(monkeypatch):
    """The errors that are logged: (event, fields)."""
    found = []
    monkeypatch.setattr(log, "_level", log.LEVELS["error"])
    monkeypatch.setattr(log, "_emit", lambda _, *what: found.append(what))
    return found


@pytest.mark.parametrize("how", ["EOF", "signal"])
@pytest.mark.parametrize("where", ["handler", "task"])
async def test_a_stuck_plugin_is_given_up_after_stop_timeout(autojump_clock, errors, where, how):
    async with prompted(Stuck(where)) as chain:
        assert await chain.seconds_to_end(how) == pytest.approx(STOP_TIMEOUT, abs=0.2)

        (event, fields), *others = errors
        assert (event, others) == ("plugin did not end, given up", [])
        assert fields["plugin"] == "Stuck"
        assert fields["at"].startswith(FILE)
        assert fields["seconds"] == pytest.approx(STOP_TIMEOUT, abs=0.2)
        assert ("method" in fields) == (where == "handler")
        assert ("task" in fields) == (where == "task")


@pytest.mark.parametrize("how", ["EOF", "signal"])
async def test_two_stuck_plugins_have_the_same_deadline(autojump_clock, errors, how):
    async with prompted(Stuck("task"), Stuck("handler")) as chain:
        assert await chain.seconds_to_end(how) == pytest.approx(STOP_TIMEOUT, abs=0.2)

        assert sorted(fields["plugin"] for _, fields in errors) == ["Stuck", "Stuck-2"]


async def test_a_prompt_in_a_stuck_plugin_is_answered_with_an_error(autojump_clock):
    async with prompted(Stuck("handler")) as chain:
        await chain.seconds_to_end("EOF")

        await trio.testing.wait_all_tasks_blocked()
        assert chain.answer == "The chain ended before this was answered"


class Slow(Proxy):
    """Notes what passes; other tasks run before it goes on."""

    @on("session/update")
    async def update(self, params: dict, forward):
        await steps()
        await forward()


class Tells(Proxy):
    """Answers a prompt at once, and tells by an update how the agent has answered it."""

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        self.defer(lambda: None)(b"{}", None)
        try:
            await self.agent.request("session/prompt", params)
        except RequestError as exc:
            await steps()
            told = {"sessionUpdate": "told", "message": exc.message}
            await self.client.notify(
                "session/update", {"sessionId": params["sessionId"], "update": told}
            )


async def steps():
    for _ in range(10):
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("order", ["T", "ST", "TS", "STS"])
async def test_what_proxies_make_of_a_failure_reaches_the_client_before_the_end(order):
    async def fail(session):
        agent.say(session, "last words")
        agent.hang_up()
        await trio.sleep_forever()

    agent = FakeAgent(turns=[[fail]])
    proxies = [Slow() if letter == "S" else Tells() for letter in order]
    async with open_chain(*proxies, agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/"), "hello")
        await client.attached.ended.wait()
        (told,) = [each for each in client.transcript.updates() if "message" in each]
    assert "hung up" in told["message"]


async def test_the_client_reads_its_answers_although_the_process_stood_still(mock_clock):
    end = SimpleNamespace(
        flusher=Flusher(), connection=SimpleNamespace(closed=False, close_writing=lambda: None)
    )
    closed = trio.Event()

    async def close():
        await ClientEnd.close(end, 5)
        closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(3600)
        await trio.testing.wait_all_tasks_blocked()
        assert not closed.is_set()

        end.connection.closed = True  # the client has read the rest
        end.flusher.made_room()
        await closed.wait()
