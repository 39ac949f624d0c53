"""A plugin that does not end is given up `stop_timeout` after a signal or EOF; after EOF it has one
more second for its clean-up, if the client waits for its answer until then (virtual clock)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from conductor import log
from conductor.background_tasks import background_tasks
from conductor.chain.client_end import ClientEnd
from conductor.chain.shutdown import Ending, Shutdown
from conductor.errors import ComponentError, RequestError
from conductor.proxy import Proxy, on
from conductor.routing.link import Link
from conductor.testing import FakeAgent, open_chain
from conductor.transport.io_loop import Flusher

STOP_TIMEOUT = 5.0
"""Seconds: the default."""
CLEAN_UP = 1.0
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
        seconds = STOP_TIMEOUT + (CLEAN_UP if (where, how) == ("handler", "EOF") else 0)
        assert await chain.seconds_to_end(how) == pytest.approx(seconds, abs=0.2)

        (event, fields), *others = errors
        assert (event, others) == ("plugin did not end, given up", [])
        assert fields["plugin"] == "Stuck"
        assert fields.get("handler", FILE).startswith(FILE)
        assert fields["seconds"] == pytest.approx(seconds, abs=0.2)
        assert ("method" in fields) == (where == "handler")
        assert ("handler" in fields) == (where == "handler")


@pytest.mark.parametrize("how", ["EOF", "signal"])
async def test_two_stuck_plugins_have_the_same_deadline(autojump_clock, errors, how):
    async with prompted(Stuck("task"), Stuck("handler")) as chain:
        seconds = STOP_TIMEOUT + (CLEAN_UP if how == "EOF" else 0)
        assert await chain.seconds_to_end(how) == pytest.approx(seconds, abs=0.2)

        assert sorted(fields["plugin"] for _, fields in errors) == ["Stuck", "Stuck-2"]


@pytest.mark.parametrize("how", ["EOF", "signal"])
async def test_a_prompt_in_a_stuck_plugin_is_answered(autojump_clock, how):
    async with prompted(Stuck("handler")) as chain:
        await chain.seconds_to_end(how)

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


class Marks(Proxy):
    """Waits for the answer to a prompt, and marks it."""

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        return {**await forward(), "_meta": {"marked": True}}


async def test_what_the_agent_answers_after_the_clients_eof_reaches_the_client(autojump_clock):
    async def think(session):
        await trio.sleep(STOP_TIMEOUT * 0.9)

    async with prompted(Marks(), FakeAgent(turns=[[think]])) as chain:
        assert await chain.seconds_to_end("EOF") == pytest.approx(STOP_TIMEOUT * 0.9, abs=0.2)

        await trio.testing.wait_all_tasks_blocked()
        assert chain.answer == {"stopReason": "end_turn", "_meta": {"marked": True}}


class EndlessChains:
    """Further chains that end only when they are killed."""

    def __init__(self):
        self.killed = trio.Event()
        self.killed_at = None

    def close_inputs(self, *, at_once):
        self.at_once = at_once

    def kill(self):
        self.killed_at = trio.current_time()
        self.killed.set()

    async def wait_ended(self):
        await self.killed.wait()


class OpenRequests:
    """The client's end of a chain: keeps the errors for its open requests."""

    failure = None

    def end_detached(self):
        pass

    def answer_open_requests(self, failure):
        self.failure = failure

    async def close(self, seconds):
        pass


def shutdown(client, further=None):
    components = SimpleNamespace(running=[], tasks={})
    client.flusher = Flusher()
    client.link = Link("client", "client", lambda *_: None)
    return Shutdown(client, components, STOP_TIMEOUT, further)


@pytest.mark.parametrize(("reason", "at_once"), [("stopped", True), ("never started", False)])
async def test_further_chains_are_killed_by_the_time_of_the_first_reason_to_end(
    autojump_clock, reason, at_once
):
    further = EndlessChains()
    ended = shutdown(OpenRequests(), further)
    begin = trio.current_time()
    ended.begin()
    await trio.sleep(2)
    ended.begin()
    await ended.run(Ending(reason), answers=True)

    assert further.at_once is at_once
    assert further.killed_at - begin == pytest.approx(2 * STOP_TIMEOUT)


async def test_an_error_at_the_end_says_that_the_agent_has_to_be_started_again():
    client = OpenRequests()
    ended = shutdown(client)
    ended.begin()
    await ended.run(Ending("stopped", ComponentError("agent", "agent: crashed")), answers=True)

    assert b"start the agent again" in client.failure.answer("session/prompt", delivered=True)
