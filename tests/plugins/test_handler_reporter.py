"""Handlers of requests in isolated plugins are in the trace, each with its message."""

from __future__ import annotations

import pytest

from conductor.chainfile import load
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.tracing.encoder import Encoder
from conductor.tracing.links import find_causes, is_same_message
from conductor.tracing.reader import read_records
from conductor.tracing.recorder import TraceRecorder
from conductor.tracing.records import HandlerRecord, RequestRecord

pytestmark = pytest.mark.slow

PLUGIN = """
import attrs
from conductor.log import get_logger
from conductor.proxy import Proxy, on

log = get_logger(component="shout")

@attrs.define
class Shout(Proxy):
    @on("session/prompt")
    async def shout(self, request: dict, forward):
        log.info("rule applied", rule="loud")
        await self.client.notify("_x/made", {})
        return await forward(request)
"""


@pytest.fixture
def traced(tmp_path):
    """A function that runs `session` with a client of the chain; it returns the records."""
    (tmp_path / "shout.py").write_text(PLUGIN)

    async def run(session):
        file = tmp_path / "chain.yaml"
        plugin = "{use: ./shout.py:Shout, isolate: true}"
        chain = f"version: 1\nmcp_bridge: off\nproxies: [{plugin}]\nagent: {{use: test-agent}}\n"
        file.write_text(chain)
        entries = []
        recorder = TraceRecorder("traced", sink=entries.append)
        async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
            await attached.client.initialize()
            await session(attached.client)
        lines = Encoder().encode(entries)
        return list(read_records(lines.splitlines(keepends=True)))

    return run


def prompt(records):
    (asked,) = (
        each
        for each in records
        if isinstance(each, RequestRecord)
        and (each.receiver, each.method) == ("Shout", "session/prompt")
    )
    return asked


async def say(client):
    session = await client.new_session("/")
    await client.prompt(session, "say one")


async def test_the_handler_of_a_request_is_recorded_with_its_message(traced, tmp_path):
    records = await traced(say)

    (run,) = (
        each
        for each in records
        if isinstance(each, HandlerRecord)
        and (each.component, each.method) == ("Shout", "session/prompt")
    )
    asked = prompt(records)
    assert (run.message, run.handler) == (asked.n, f"{tmp_path}/shout.py:10")
    assert run.outcome == "forwarded"
    assert asked.ts <= run.ts - run.took
    assert 0 <= run.waited < run.ts


async def test_starts_and_ends_of_the_plugins_own_chain_are_not_recorded(traced):
    records = await traced(say)

    assert events(records).count("chain initialized") == 1
    assert events(records).count("chain ended") == 1


async def test_links_through_the_plugin_are_inferred(traced):
    records = await traced(say)

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


def events(records):
    return [getattr(each, "event", "") for each in records]
