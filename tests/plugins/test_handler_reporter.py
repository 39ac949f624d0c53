"""Handlers of plugins behind a link are in the trace of the chain, each with its message."""

from __future__ import annotations

import pytest
import trio

from conductor.chainfile import load
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.tracing.encoder import Encoder
from conductor.tracing.links import find_causes, is_same_message
from conductor.tracing.reader import read_records
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.records import HandlerRecord, NotificationRecord, RequestRecord

PLUGIN = """
from contextlib import asynccontextmanager

import attrs
import trio
from conductor.log import get_logger
from conductor.proxy import Proxy, on

log = get_logger(component="shout")

@attrs.define
class Shout(Proxy):
    worn_out: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def lifespan(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fail)
            yield
            nursery.cancel_scope.cancel()

    async def fail(self):
        await self.worn_out.wait()
        raise RuntimeError("worn out")

    @on("_x/fail", source="client")
    async def told(self, message: dict):
        self.worn_out.set()

    @on("session/prompt")
    async def shout(self, request: dict, forward):
        log.info("rule applied", rule="loud")
        await self.client.notify("_x/made", {})
        return await forward(request)

    @on("_x/ping", source="client")
    async def ping(self, message: dict, forward):
        await forward(message)

    @on("session/update")
    async def count(self, update: dict, forward):
        await forward(update)
"""
LINKED = pytest.mark.parametrize(
    "keys",
    [
        "on_failure: restart",
        pytest.param("isolate: true, on_failure: restart", marks=pytest.mark.slow),
    ],
    ids=["restarted", "isolated"],
)


@pytest.fixture
def traced(tmp_path):
    """A function that runs `session` with a client of the chain; it returns the records."""
    (tmp_path / "shout.py").write_text(PLUGIN)

    async def run(keys, session, *, whole=True):
        file = tmp_path / "chain.yaml"
        plugin = f"{{use: ./shout.py:Shout, {keys}}}"
        chain = f"version: 1\nmcp_bridge: off\nproxies: [{plugin}]\nagent: {{use: test-agent}}\n"
        file.write_text(chain)
        entries = []
        recorder = (
            TraceRecorder("traced", sink=entries.append) if whole else TraceRecorder("traced")
        )

        def records():
            encoder = Encoder()
            lines = encoder.encode(entries or recorder.flight)
            return list(read_records(lines.splitlines(keepends=True)))

        async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
            await attached.client.initialize()
            await session(attached.client, records)
        return records()

    return run


def handled(records, component, method):
    """The numbers of the messages for which this component has run a handler."""
    return [
        each.message
        for each in records
        if isinstance(each, HandlerRecord) and (each.component, each.method) == (component, method)
    ]


def received(records, sender, kind):
    """The messages that the plugin has got from this neighbour."""
    return [
        each
        for each in records
        if isinstance(each, kind) and (each.sender, each.receiver) == (sender, "Shout")
    ]


def prompt(records):
    (asked,) = (
        each
        for each in received(records, "client", RequestRecord)
        if each.method == "session/prompt"
    )
    return asked


async def say(client, records):
    session = await client.new_session("/")
    await client.prompt(session, "say one")


@LINKED
async def test_the_handler_of_a_request_is_recorded_with_its_message(traced, keys, tmp_path):
    records = await traced(keys, say)

    (run,) = (
        each
        for each in records
        if isinstance(each, HandlerRecord)
        and (each.component, each.method) == ("Shout", "session/prompt")
    )
    asked = prompt(records)
    assert (run.message, run.handler) == (asked.n, f"{tmp_path}/shout.py:30")
    assert run.outcome == "forwarded"
    assert asked.ts <= run.ts - run.took
    assert 0 <= run.waited < run.ts


@LINKED
async def test_handlers_of_notifications_are_recorded_with_theirs(traced, keys):
    async def updates_and_pings(client, records):
        session = await client.new_session("/")
        for _ in range(3):
            client.notify("_x/ping", {})
            await client.prompt(session, "stream 7")

    records = await traced(keys, updates_and_pings)

    updates = [each.n for each in received(records, "mcp-bridge", NotificationRecord)]
    pings = [each.n for each in received(records, "client", NotificationRecord)]
    assert handled(records, "Shout", "session/update") == updates
    assert len(updates) > 20
    assert handled(records, "Shout", "_x/ping") == pings
    assert len(pings) == 3


async def test_what_the_plugin_logs_is_in_the_trace(traced):
    records = await traced("on_failure: restart", say)

    (log,) = (each for each in records if getattr(each, "event", "") == "rule applied")
    assert (log.component, log.level, log.fields["rule"]) == ("shout", "info", "loud")


async def test_starts_and_ends_of_the_plugins_own_chain_are_not_recorded(traced):
    records = await traced("on_failure: restart", say)

    assert events(records).count("chain initialized") == 1
    assert events(records).count("chain ended") == 1


async def test_links_through_the_plugin_are_inferred(traced):
    records = await traced("on_failure: restart", say)

    asked = prompt(records)
    forwarded = next(
        each
        for each in records
        if isinstance(each, RequestRecord)
        and (each.sender, each.method) == ("Shout", "session/prompt")
    )
    causes = find_causes(records)
    assert causes[forwarded.n].n == asked.n
    assert is_same_message(asked, forwarded)


async def test_the_flight_recorder_has_the_handlers_of_requests_only(traced):
    records = await traced("on_failure: restart", say, whole=False)

    asked = [each.n for each in received(records, "client", RequestRecord)]
    assert handled(records, "Shout", "session/prompt") == asked[-1:]
    assert handled(records, "Shout", "session/update") == []


@LINKED
async def test_messages_are_counted_anew_after_a_restart(traced, keys):
    async def failing(client, records):
        session = await client.new_session("/")
        await client.prompt(session, "stream 7")
        client.notify("_x/fail", {})
        await until(lambda: "component restarted" in events(records()))
        await client.prompt(session, "stream 5")

    records = await traced(keys, failing)

    last = records[events(records).index("component restarted") :]
    updates = [each.n for each in received(last, "mcp-bridge", NotificationRecord)]
    assert handled(last, "Shout", "session/update") == updates
    assert len(updates) >= 5


def events(records):
    return [getattr(each, "event", "") for each in records]


async def until(is_so):
    with trio.fail_after(20):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.01)
