"""Fuzzers: for any input in any chunking, every request is answered and nothing breaks.

Few examples by default; `HYPOTHESIS_PROFILE=thorough` for many.
"""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import raw_json
from support.peers.port import Neighbour
from support.raw_json import dumps

from conductor.errors import RequestError
from conductor.jsonrpc.codec import Batch, Malformed, decode
from conductor.jsonrpc.connection import Connection
from conductor.jsonrpc.messages import Message
from conductor.limits import Limits
from conductor.routing.envelope import unwrap
from conductor.routing.link import Link
from conductor.routing.port import Port, connect_ports

JUNK = [b"", b"{", b"[", b"[]", b"null", b"42", b'"\\ud800"', b"\xff\xfe", b"\x00", b"Loading...",
        b"\x1b[32m", b'{"jsonrpc":"2.0","id":', b'{"jsonrpc":"1.0","method":"x"}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', b"[" * 3000, b'{"a":' * 3000,
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"no id"}}']  # fmt: skip
METHODS = ["initialize", "session/new", "session/prompt", "session/update", "session/cancel",
           "proxy/initialize", "_proxy/initialize", "proxy/successor", "_proxy/successor",
           "$/cancel_request", "_x", ""]  # fmt: skip

ids = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.just(1))
members = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", None])},
    optional={
        "id": st.one_of(ids, st.just(1.5), st.just([])),
        "method": st.one_of(st.sampled_from(METHODS), st.text(max_size=5), st.just(3)),
        "params": st.recursive(
            st.one_of(
                st.none(),
                st.just({}),
                st.just({"sessionId": "s"}),
                st.just({"requestId": 1}),
                st.fixed_dictionaries({"method": st.sampled_from(METHODS)}),
                st.just([1]),
                st.just("no"),
            ),
            lambda inner: st.fixed_dictionaries(
                {"method": st.sampled_from(METHODS), "params": inner}
            ),
            max_leaves=3,
        ),
        "result": st.sampled_from([{}, None, {"sessionId": "s"}, {"protocolVersion": 1}]),
        "error": st.sampled_from([{"code": 1, "message": "m"}, {"code": "x"}, None, 3]),
    },
)
lines = st.one_of(
    members.map(dumps),
    st.lists(members, max_size=3).map(dumps),
    st.sampled_from(JUNK),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b" ")),
    raw_json.values.map(str.encode),
)


@given(lines)
def test_a_line_is_exactly_one_frame(line):
    assert isinstance(decode(line), Message | Malformed | Batch)


@given(st.one_of(raw_json.values.map(str.encode), st.binary(max_size=40), st.sampled_from(JUNK)))
def test_an_envelope_is_parsed_or_a_clear_error(params):
    try:
        method = unwrap(params).method
    except RequestError as exc:
        method = str(exc.code)
        if exc.code != -32602:
            raise
    assert isinstance(method, str)


class Kept:
    """A transport that records what is written."""

    def __init__(self):
        self.written = b""

    def write_now(self, pieces):
        data = b"".join(pieces)
        self.written += data
        return len(data)

    def close_writing(self):
        pass

    def flush_soon(self, flush):
        pass

    def answers(self):
        found = []
        for line in self.written.splitlines():
            value = json.loads(line)
            found += value if isinstance(value, list) else [value]
        return Counter(
            json.dumps(each.get("id")) for each in found if "result" in each or "error" in each
        )


class Refusing(Port):
    """A neighbour that answers every request at once."""

    def request(self, call, method, params):
        call.target = self
        self.neighbour.respond(call, b"{}", None)

    def notify(self, method, params):
        pass

    def respond(self, call, result, error):
        raise AssertionError("we asked nothing")

    def cancel(self, call):
        pass


def wired(role):
    kept, reports = Kept(), []
    link = Link("c", role, lambda *report: reports.append(report))
    connect_ports(link.plain, Refusing())
    if link.enveloped is not None:
        connect_ports(link.enveloped, Refusing())
    link.connect(Connection(
        kept, link, kept, answers_malformed=role in ("client", "parent"),
        limits=Limits(max_message_bytes=5000, max_batch=2, max_open_requests=3),
    ))  # fmt: skip
    return link, kept


def asked(stream):
    """The ids of the plain, valid requests in a stream: each of them must be answered, once."""
    found = Counter()
    for line in stream:
        frame = decode(line) if len(line) <= 5000 else None
        if (
            isinstance(frame, Message)
            and isinstance(frame.method, str)
            and "id" in json.loads(line)
        ):
            found[json.dumps(json.loads(line)["id"])] += 1
    return found


@pytest.mark.parametrize("role", ["client", "proxy", "agent", "parent"])
@given(st.lists(lines, max_size=12), st.data())
@settings(max_examples=60)
def test_every_request_in_any_stream_is_answered_once(role, stream, data):
    link, kept = wired(role)
    bytes_ = b"".join(line + b"\n" for line in stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(bytes_)), max_size=6)))

    for start, end in zip([0, *cuts], [*cuts, len(bytes_)], strict=True):
        link.connection.feed(bytes_[start:end])
    link.connection.end()
    link.connection.flush()

    assert link.connection.unanswered() == []
    answers = kept.answers()
    for id, count in asked(stream).items():
        assert answers[id] >= count
        if id != "null" and not any(line.lstrip()[:1] == b"[" for line in stream):
            # Nothing else of that id may be answered, but a malformed request that bears it.
            assert answers[id] <= sum(line.count(b'"id"') for line in stream)


@given(st.lists(lines, max_size=10))
@settings(max_examples=60)
def test_a_component_gets_no_answers_for_the_ids_of_others(stream):
    """A response of the agent settles its own request only."""
    link, _ = wired("agent")
    neighbour = Neighbour()
    connect_ports(neighbour, link.plain)

    for line in stream:
        link.connection.feed(line + b"\n")

    assert [each for each in neighbour.heard if each[0] == "answer"] == []
