"""A start that fails and is tried again, at the startup gate, and the texts that explain it. Whole
chains are in tests/engine."""

from __future__ import annotations

import json

import pytest
from support.peers.port import Flusher, ListTransport, Neighbour, cancel
from support.raw_json import compact

from conductor.chain.start_failure import FailureContext
from conductor.chain.startup_gate import StartupGate
from conductor.errors import StartError
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.messages import encode_error, exception_to_error
from conductor.routing.link import Link
from conductor.routing.port import connect_ports
from conductor.routing.stage import Stage

INIT = {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
NEW = {"method": "session/new", "params": {"cwd": "/", "mcpServers": []}}


class GateBench:
    """A client played by the test, the gate, and a first component that records its events."""

    def __init__(self, failure_context=None):
        self.transport, self.flusher = ListTransport(), Flusher()
        link = Link("client", "client", lambda *report: None)
        link.connect(Connection(self.transport, link, self.flusher, answers_malformed=True))
        self.link = link
        self.first = Neighbour()
        self.error = None
        self.opened = 0
        self.gate = StartupGate(
            start=self._start,
            patch_result=lambda result: result + b" ",
            on_open=self._opened,
            on_start_failed=lambda: None,
            failure_context=failure_context,
        )
        link.plain.insert(self.gate)

    def _start(self):
        if self.error is not None:
            raise self.error
        connect_ports(self.link.plain, self.first)

    def _opened(self):
        self.opened += 1

    def feed(self, *messages):
        for message in messages:
            line = compact({"jsonrpc": "2.0", **message}) + "\n"
            self.link.connection.feed(line.encode())

    def written(self):
        self.flusher.flush()
        found = self.transport.messages()
        assert all(message.pop("jsonrpc") == "2.0" for message in found)
        return found

    def answer(self, result=b"{}", error=None):
        (call,) = [call for call in self.first.asked if call.method == "initialize"][-1:]
        self.first.neighbour.respond(call, None if error else result, error)


class FailureAgentBench(GateBench):
    """A gate with a start-failure agent."""

    def __init__(self):
        super().__init__(FailureContext())
        self.error = StartError("x", "no")

    def answer_last(self, result=None, error=None):
        self.first.neighbour.respond(self.first.asked[-1], result, error)


def retried(answer=b'{"protocolVersion":1}'):
    """A gate whose second start succeeded, with an open session of the start-failure agent."""
    bench = FailureAgentBench()
    bench.feed(INIT, NEW | {"id": 1})
    *_, explained = bench.written()
    bench.failed_session = explained["result"]["sessionId"]
    bench.error = None
    bench.feed(NEW | {"id": 2})
    bench.answer(answer)
    return bench


def test_a_late_answer_to_an_attempt_that_failed_is_ignored():
    bench = GateBench()
    bench.feed(INIT)
    (late,) = bench.first.asked
    bench.gate.fail(StartError("x", "no"))
    bench.feed(INIT | {"id": 1})
    bench.written()

    bench.first.neighbour.respond(late, b'"late"', None)
    assert bench.written() == []
    bench.answer()

    assert bench.written() == [{"id": 1, "result": {}}]


def test_a_set_up_during_a_retry_gets_the_chain_of_its_directory():
    bench = FailureAgentBench()
    bench.feed(INIT, NEW | {"id": 1})
    bench.error = None
    chosen = []

    class Choice(Stage):
        name = "session branches"
        received = frozenset({"session/new"})

        def receive_request(self, forward, call, method, params):
            chosen.append(json.loads(params)["cwd"])

    bench.link.plain.insert(Choice())
    bench.feed(NEW | {"id": 2}, NEW | {"id": 3, "params": {"cwd": "/other"}}, {"method": "b"})
    bench.answer(b'{"protocolVersion":1}')

    assert [event[1] for event in bench.first.heard] == ["initialize", "session/new", "b"]
    assert chosen == ["/other"]  # that of the first one was chosen before the start


def test_sessions_of_the_start_failure_agent_never_reach_the_chain():
    bench = retried()
    bench.answer_last(b'{"sessionId":"real"}')
    bench.written()
    before = len(bench.first.heard)
    failure_context = {"sessionId": bench.failed_session}

    bench.feed(
        {"id": 3, "method": "session/prompt", "params": {**failure_context, "prompt": []}},
        {"method": "session/cancel", "params": failure_context},
        {"id": 4, "method": "session/set_mode", "params": failure_context},
    )

    chunk, prompted, refused = bench.written()
    assert "the chain runs now" in chunk["params"]["update"]["content"]["text"]
    assert prompted == {"id": 3, "result": {"stopReason": "end_turn"}}
    assert (refused["id"], refused["error"]["code"]) == (4, -32601)
    assert bench.first.heard[before:] == []


def test_messages_of_the_chain_reach_the_client_beside_old_sessions():
    bench = retried()
    bench.answer_last(b'{"sessionId":"real"}')
    bench.written()

    bench.feed({"id": 3, "method": "a"})
    bench.first.neighbour.notify("n", None)
    bench.answer_last(b"1")

    assert bench.written() == [{"method": "n"}, {"id": 3, "result": 1}]


def test_a_cancelled_retry_is_cancelled_and_leaves_the_start_failure_agent():
    bench = FailureAgentBench()
    bench.feed(INIT, NEW | {"id": 1})
    bench.written()
    bench.error = None
    bench.feed(NEW | {"id": 2}, cancel(2))
    assert bench.first.heard[-1] == ("cancel", "initialize")
    bench.answer(error=b'{"code":-32800,"message":"Request cancelled"}')

    (answer,) = bench.written()
    assert (answer["id"], answer["error"]["code"]) == (2, -32800)
    assert bench.gate.state == "explaining"


@pytest.mark.parametrize(("asked", "answered"), [(1, 1), (2, 2), (99, 2), (0, 1), ("x", 1)])
def test_the_newest_version_that_both_support_is_announced(asked, answered):
    bench = FailureAgentBench()
    bench.feed({"id": 0, "method": "initialize", "params": {"protocolVersion": asked}})

    assert bench.written()[0]["result"]["protocolVersion"] == answered
    assert bench.gate.version == answered


def test_an_explanation_has_the_error_its_facts_and_a_remedy():
    error = StartError(
        "helper",
        "command not found: x (PATH is /bin)",
        command=["x", "--acp"],
        stderr_tail=["first", "last"],
        location="chain.yaml:3:4",
    )

    context = FailureContext(file="/c/chain.yaml")

    text = context.describe(exception_to_error(error), client="Zed")

    assert text.splitlines() == [
        "**acp-conductor: the chain of this agent did not start.**",
        "",
        "```",
        "component 'helper' did not start: command not found: x (PATH is /bin)",
        "```",
        "- Where: `chain.yaml:3:4`",
        "- Command: `x --acp`",
        "- The last lines of its stderr:",
        "",
        "```",
        "first",
        "last",
        "```",
        "",
        "- Install the program, or write its absolute path: editors often have a shorter `PATH` "
        "than a shell. `env: {PATH: …}` sets one for the component.",
        "- When it is fixed, open a new session (thread): the chain is tried again then.",
        "- In a terminal, in the project's directory, `acp-conductor check --start /c/chain.yaml` "
        "shows more.",
        "- The log is what acp-conductor writes to stderr: in Zed: the command `zed: open log`.",
    ]


@pytest.mark.parametrize(
    ("line", "is_explained"),
    [
        ("node: error while loading shared libraries: libssl.so.3: cannot open", True),
        ("node: /app/lib/libc.so.6: version `GLIBC_2.38' not found (required by node)", True),
        ("Error: no key", False),
    ],
)
def test_a_program_that_does_not_find_its_libraries_gets_a_remedy(line, is_explained):
    error = StartError("helper", "it exited with status 127", stderr_tail=[line])

    text = FailureContext().describe(exception_to_error(error))

    assert ("env: {LD_LIBRARY_PATH: null}" in text) is is_explained


def test_an_error_of_a_component_names_the_component():
    error = encode_error(-32603, "Internal error", "no key")

    text = FailureContext().describe(error, component="claude")

    assert "'claude' answered: Internal error (no key)" in text
