"""What a recorder sees of a chain, as records."""

from __future__ import annotations

import json
import sys
from collections import deque
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from support.seen_port import traced_port

from conductor.chainfile import load
from conductor.client.acp_client import Client
from conductor.client.embedding import attach_file
from conductor.errors import RequestError
from conductor.jsonrpc.codec import decode
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.notification_batch import split_block
from conductor.routing.link import Link
from conductor.tracing.encoder import Encoder
from conductor.tracing.links import find_causes
from conductor.tracing.reader import read_records
from conductor.tracing.recorder import LogEntry, StartEntry, TraceRecorder
from conductor.tracing.records import (
    HandlerRecord,
    LogRecord,
    NotificationRecord,
    RequestRecord,
    ResponseRecord,
    StderrRecord,
)

PLUGIN = """
import attrs
from conductor.log import get_logger
from conductor.proxy import Proxy, on

log = get_logger(component="shout")

@attrs.define
class Shout(Proxy):
    @on("session/prompt")
    async def shout(self, request: dict, forward):
        request["prompt"][0]["text"] += "!"
        await self.client.notify("_x/before", {})
        log.info("rule applied", rule="loud")
        answer = await forward(request)
        await self.client.notify("_x/after", {})
        return answer
"""
PROGRAM = """
import sys
from conductor.proxy import Proxy, run
import attrs
sys.stderr.write("hello from stderr\\n")
@attrs.define
class Nothing(Proxy): pass
run(Nothing)
"""


class Traced:
    """A client of a chain, and the records so far."""

    def __init__(self, client, recorder):
        self.client, self.recorder = client, recorder

    def lines(self):
        written = Encoder().encode(self.recorder.flight)
        return written.splitlines(keepends=True)

    def records(self, *kinds):
        lines = read_records(self.lines())
        return [each for each in lines if not kinds or isinstance(each, kinds)]

    def messages(self, *kinds):
        return self.records(*(kinds or (RequestRecord, NotificationRecord, ResponseRecord)))

    def ways(self, method, kind):
        """Sender and receiver of each message of this kind and method."""
        return [
            (each.sender, each.receiver) for each in self.records(kind) if each.method == method
        ]


@pytest.fixture
def traced_chain(tmp_path):
    (tmp_path / "shout.py").write_text(PLUGIN)

    @asynccontextmanager
    async def run(chain):
        file = tmp_path / "chain.yaml"
        file.write_text(f"version: 1\nname: traced\nmcp_bridge: off\n{chain}")
        recorder = TraceRecorder("traced")
        async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
            await attached.client.initialize()
            yield Traced(attached.client, recorder)

    return run


IN_PROCESS = "proxies: [{use: ./shout.py:Shout}]\nagent: {use: test-agent}\n"


async def test_each_hop_of_a_message_is_recorded_once(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")

    there = [("client", "Shout"), ("Shout", "mcp-bridge"), ("mcp-bridge", "test-agent")]
    back = [(receiver, sender) for sender, receiver in reversed(there)]
    assert traced.ways("initialize", RequestRecord) == there
    assert traced.ways("initialize", ResponseRecord) == back
    assert traced.ways("session/prompt", RequestRecord) == there
    assert traced.ways("session/prompt", ResponseRecord) == back
    assert [each.from_ for each in traced.records(RequestRecord)][:2] == ["Client", "Proxy(0)"]


RUST_KEYS = {
    "request": {"type", "ts", "protocol", "from", "to", "id", "method", "params"},
    "notification": {"type", "ts", "protocol", "from", "to", "method", "params"},
    "response": {"type", "ts", "from", "to", "id", "is_error", "payload"},
}


async def test_the_viewer_of_the_rust_conductor_finds_its_keys_and_each_answer(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")
        with pytest.raises(RequestError):
            await traced.client.request("_nobody/knows", {})

    lines = [json.loads(line) for line in traced.lines()]
    messages = [each for each in lines if each["type"] in RUST_KEYS]
    open_requests, ends, errors = set(), set(), []
    for each in messages:
        assert RUST_KEYS[each["type"]] <= each.keys()
        assert each.get("protocol") in ("acp", None)
        ends |= {each["from"], each["to"]}
        if each["type"] == "request":  # it finds the answer by the receiver and the id
            assert (each["to"], each["id"]) not in open_requests
            open_requests.add((each["to"], each["id"]))
        elif each["type"] == "response":
            open_requests.remove((each["from"], each["id"]))
            errors += [each["error_domain"]] if each["is_error"] else []

    assert open_requests == set()
    assert ends == {"Client", "Proxy(0)", "Proxy(1)", "Agent"}
    assert errors == ["acp"] * 3


async def test_a_message_names_the_one_that_it_came_from(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")

    of = {each.n: each for each in traced.messages()}
    prompts = [each for each in of.values() if each.method == "session/prompt"]
    asked, forwarded, _ = (each.n for each in prompts if isinstance(each, RequestRecord))
    _, answered, returned = (each.n for each in prompts if isinstance(each, ResponseRecord))
    (before,) = (each for each in of.values() if each.method == "_x/before")
    (after,) = (each for each in of.values() if each.method == "_x/after")
    texts = [each for each in traced.messages(NotificationRecord) if "hello" in str(each.params)]

    assert of[forwarded].cause == before.cause == asked
    assert (of[answered].request, of[returned].request) == (forwarded, asked)
    assert of[returned].cause == after.cause == answered
    assert [each.hop for each in texts[-3:]] == [2, 1, 0]
    assert [each.cause for each in texts[-2:]] == [each.n for each in texts[-3:-1]]
    assert of[asked].params["prompt"][0]["text"] == "say hello"
    assert of[forwarded].params["prompt"][0]["text"] == "say hello!"


async def test_handlers_are_recorded_with_their_place(traced_chain, tmp_path):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")

    (handled,) = (
        each
        for each in traced.records(HandlerRecord)
        if (each.component, each.method) == ("Shout", "session/prompt")
    )
    asked = next(each for each in traced.records(RequestRecord) if each.method == "session/prompt")
    assert handled.message == asked.n
    assert handled.handler == f"{tmp_path}/shout.py:10"
    assert handled.outcome == "forwarded"
    assert handled.took >= 0
    assert handled.waited >= 0


async def test_log_events_name_the_message_that_is_handled(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")

    asked = next(each for each in traced.records(RequestRecord) if each.method == "session/prompt")
    (logged,) = (each for each in traced.records(LogRecord) if each.event == "rule applied")
    assert (logged.component, logged.message, logged.fields) == ("shout", asked.n, {"rule": "loud"})


async def test_events_before_the_components_are_built_come_after_the_header(tmp_path):
    file, entries = tmp_path / "chain.yaml", []
    file.write_text(
        "version: 1\nmcp_bridge: off\nagent: {use: test-agent}\nadapt: {notices: always}\n"
    )
    recorder = TraceRecorder("traced", entries.append)
    async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
        await attached.client.initialize()

    assert isinstance(entries[0], StartEntry)
    (inserted,) = (
        each for each in entries if isinstance(each, LogEntry) and each.event == "adapter inserted"
    )
    assert inserted.fields["adapter"] == "notices"


async def test_programs_are_recorded_without_envelopes_with_stderr_and_lifecycle(
    traced_chain, tmp_path
):
    (tmp_path / "program.py").write_text(PROGRAM)
    chain = f"proxies: [{{name: nothing, run: [{sys.executable}, {tmp_path}/program.py]}}]\n"
    async with traced_chain(chain + "agent: {use: test-agent}\n") as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say hello")

    way = [("client", "nothing"), ("nothing", "mcp-bridge"), ("mcp-bridge", "test-agent")]
    assert traced.ways("session/prompt", RequestRecord) == way
    labels = [(each.from_, each.to) for each in traced.records(RequestRecord)]
    assert labels[:2] == [("Client", "Proxy(0)"), ("Proxy(0)", "Proxy(1)")]
    stderr = traced.records(StderrRecord)
    assert [(each.component, each.text) for each in stderr] == [("nothing", "hello from stderr")]


TOOLS = """
import attrs
from conductor.proxy import Proxy, tool

@attrs.define
class Notes(Proxy):
    @tool
    async def look(self) -> str:
        \"\"\"Look.\"\"\"
        return "found"
"""


async def test_requests_through_a_component_that_was_inserted_have_their_answers(tmp_path):
    (tmp_path / "notes.py").write_text(TOOLS)
    agent = f"agent: {{name: agent, run: [{sys.executable}, -m, conductor.testing.agent]}}"
    file = tmp_path / "chain.yaml"
    file.write_text(f"version: 1\nproxies: [{{use: ./notes.py:Notes}}]\n{agent}\n")
    recorder = TraceRecorder("traced")
    async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
        await attached.client.initialize()
        session = await attached.client.new_session("/")
        await attached.client.prompt(session, "call Notes look {}")
    traced = Traced(attached.client, recorder)

    there = [("client", "Notes"), ("Notes", "mcp-bridge"), ("mcp-bridge", "agent")]
    assert traced.ways("session/prompt", RequestRecord) == there
    asked = {each.n: each for each in traced.records(RequestRecord)}
    answered = {each.request: each for each in traced.records(ResponseRecord)}
    for n, request in asked.items():
        if request.method in ("session/prompt", "tools/call"):
            assert (answered[n].sender, answered[n].receiver) == (request.receiver, request.sender)
            assert answered[n].session == request.session
    assert [each.protocol for each in asked.values()].count("mcp") >= 2
    assert session in {each.session for each in answered.values()}


LATE = """
import attrs
import trio
from conductor.proxy import Proxy, on

@attrs.define
class Late(Proxy):
    @on("session/prompt")
    async def prompt(self, request: dict, forward):
        self.start_soon(self.beside)
        await trio.lowlevel.checkpoint()
        answer = await forward(request)
        self.after_answer(self.client.notify, "_x/afterwards", {})
        return answer

    async def beside(self):
        await self.client.notify("_x/beside", {})
        self.start_soon(self.client.notify, "_x/nested", {})
"""


async def test_what_tasks_of_a_plugin_send_is_linked_to_the_message_that_they_were_started_for(
    tmp_path, traced_chain
):
    (tmp_path / "late.py").write_text(LATE)
    late = "proxies: [{use: ./late.py:Late}]\nagent: {use: test-agent}\n"
    async with traced_chain(late) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, "say one")
        while len(found := traced.records(NotificationRecord)) < 6:
            await trio.testing.wait_all_tasks_blocked()

    by_number = {each.n: each for each in traced.messages()}
    causes = {each.method: by_number.get(each.cause) for each in found if each.method[0] == "_"}
    assert {each.method: each.receiver for each in causes.values()} == {"session/prompt": "Late"}
    assert {method: type(each) for method, each in causes.items()} == {
        "_x/beside": RequestRecord,
        "_x/nested": RequestRecord,
        "_x/afterwards": ResponseRecord,
    }


def updates(traced):
    return [each for each in traced.records(NotificationRecord) if each.hop == 0]


async def test_a_cancellation_is_recorded_on_each_hop_of_its_request(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(traced.client.prompt, session, "say waiting\nwait\nsay so")
                while not any("waiting" in str(each.params) for each in updates(traced)):
                    await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        while not any(each.is_error for each in traced.records(ResponseRecord)):
            await trio.testing.wait_all_tasks_blocked()

    asked = [each for each in traced.records(RequestRecord) if each.method == "session/prompt"]
    cancellations = [
        each for each in traced.records(NotificationRecord) if each.method == "$/cancel_request"
    ]
    assert len(asked) == 3
    assert [each.request for each in cancellations] == [each.n for each in asked]
    for request, each in zip(asked, cancellations, strict=True):
        assert (each.sender, each.receiver) == (request.sender, request.receiver)
        assert (each.hop, each.session) == (request.hop, session)
        assert each.params == {"requestId": request.id}
    causes = find_causes(traced.records())
    assert [causes[each.n].n for each in cancellations[1:]] == [
        each.n for each in cancellations[:-1]
    ]


@pytest.mark.slow
async def test_the_cancellation_of_an_initialize_is_recorded_on_each_hop(tmp_path):
    (tmp_path / "shout.py").write_text(PLUGIN)
    script = "import sys; sys.stdin.read()"
    command = json.dumps([sys.executable, "-c", script])
    file = tmp_path / "chain.yaml"
    file.write_text(
        f"version: 1\nmcp_bridge: off\nproxies: [{{use: ./shout.py:Shout}}]\n"
        f"agent: {{name: agent, run: {command}, stop_timeout: 300ms}}\n"
    )
    recorder = TraceRecorder("traced")
    async with attach_file(Client, load(str(file)), recorder=recorder) as attached:
        traced = Traced(attached.client, recorder)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attached.client.initialize)
            while len(traced.records(RequestRecord)) < 2:
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        while len(traced.records(NotificationRecord)) < 2:
            await trio.testing.wait_all_tasks_blocked()

    asked, cancelled = traced.records(RequestRecord), traced.records(NotificationRecord)
    assert [(each.method, each.receiver) for each in asked] == [
        ("initialize", "Shout"),
        ("initialize", "agent"),
    ]
    assert {each.method for each in cancelled} == {"$/cancel_request"}
    assert [each.request for each in cancelled] == [each.n for each in asked]


async def test_the_flight_recorder_keeps_the_first_bytes_of_large_payloads(traced_chain):
    text = "say " + "x" * 100_000
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        await traced.client.prompt(session, text)

    asked = next(each for each in traced.records(RequestRecord) if each.method == "session/prompt")
    assert asked.size > 100_000
    assert asked.params is None
    assert asked.head.startswith('{"sessionId":')
    assert len(asked.head) == 512
    assert asked.session == session


async def test_the_end_of_a_chain_lets_go_of_its_components(traced_chain):
    async with traced_chain(IN_PROCESS) as traced:
        session = await traced.client.new_session("/")
        traces = [entry[1] for entry in traced.recorder.flight if isinstance(entry, tuple)]
        assert all(hasattr(trace, "port") for trace in traces)
        await traced.client.prompt(session, "say hello")

    assert traces
    assert not any(hasattr(trace, "port") for trace in traces)


@pytest.mark.parametrize("is_whole", [False, True], ids=["flight recorder", "trace"])
def test_a_small_payload_does_not_keep_the_message_that_it_was_part_of(is_whole):
    entries = deque()
    recorder = TraceRecorder("demo", entries.append if is_whole else None, entries)
    port = traced_port(recorder, "agent", "client")
    line = bytes(b'{"jsonrpc":"2.0","method":"x","params":{"a":1}%b}' % (b" " * 10_000))
    before = sys.getrefcount(line)

    port.request(InFlightRequest("x", None), "x", decode(line).params)

    (entry,) = entries
    assert bytes(entry[4]) == b'{"a":1}'
    assert sys.getrefcount(line) == before


@pytest.mark.parametrize("is_whole", [False, True], ids=["flight recorder", "trace"])
def test_a_notification_does_not_keep_the_block_that_it_was_part_of(is_whole):
    entries = deque()
    recorder = TraceRecorder("demo", entries.append if is_whole else None, entries)
    port = traced_port(recorder, "agent", "client")
    line = b'{"jsonrpc":"2.0","method":"x","params":{"a":1}}\n'
    (batch,) = split_block(block := line * 10_000)
    params = batch.params
    before = sys.getrefcount(block)

    port.notify("x", params[0])

    (entry,) = entries
    assert bytes(entry[4]) == b'{"a":1}'
    assert sys.getrefcount(block) == before


def test_a_message_that_waits_for_a_restart_is_recorded_once():
    recorder = TraceRecorder("demo")
    link = Link("notes", "proxy", lambda *report: None)
    recorder.trace(link.plain, "notes", "client")
    link.start_queueing()

    link.plain.notify("x", b"{}")
    link.release_queue()

    assert [entry[3] for entry in recorder.flight] == ["x"]


DYING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, result = message["method"], {}
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    elif method == "session/new":
        result = {"sessionId": "one"}
    elif method == "session/prompt":
        if "die" in line:
            sys.exit(3)
        result = {"stopReason": "end_turn"}
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""


async def test_what_the_conductor_asks_a_restarted_agent_is_recorded(traced_chain, tmp_path):
    (tmp_path / "dying.py").write_text(DYING)
    chain = (
        f"agent: {{name: dying, on_failure: restart, run: [{sys.executable}, {tmp_path}/dying.py]}}"
    )
    async with traced_chain(f"proxies: [{{use: ./shout.py:Shout}}]\n{chain}\n") as traced:
        session = await traced.client.new_session("/")
        with pytest.raises(RequestError):
            await traced.client.prompt(session, "die")
        await traced.client.prompt(session, "go on")

    messages = traced.messages(RequestRecord, ResponseRecord)
    own = [each for each in messages if "conductor" in (each.sender, each.receiver)]
    assert [(type(each), each.method, each.to) for each in own] == [
        (RequestRecord, "initialize", "Agent"),
        (ResponseRecord, "initialize", "conductor"),
        (RequestRecord, "session/load", "Agent"),
        (ResponseRecord, "session/load", "conductor"),
    ]
    assert [each.hop for each in own] == [1] * 4
    assert [each.request for each in own[1::2]] == [each.n for each in own[::2]]
    assert own[2].session == own[3].session == session
    assert [each.toward for each in own] == ["agent", "client"] * 2
