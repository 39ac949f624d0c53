"""Any JSON value survives the trip through any chain, byte for byte (invariant 3)."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support import raw_json
from support.memory_chain import INITIALIZE, hops, running_chain
from support.peers.wire import EchoAgent, MemoryComponent, PassProxy
from support.raw_json import cut
from trio.testing import MockClock

KINDS = ["proxy", "_proxy", "idle", "handlers"]
NESTED = [*KINDS, "nested"]


def echoing(kinds, capacity=65536):
    return lambda: hops(*kinds, agent=EchoAgent, capacity=capacity)


def travel(kinds, lines, *, capacity=65536):
    """What comes back to the client for these lines, as raw members."""

    async def main():
        async with running_chain(echoing(kinds, capacity), capacity=capacity) as harness:
            await harness.send(INITIALIZE)
            assert cut(await harness.client.receive_line())["result"] == b'{"protocolVersion":1}'
            for line in lines:
                harness.client.send_line(line)
            await harness.send()
            back = [cut(line) for line in harness.client.lines]
            harness.client.lines.clear()
            return back

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def request(params):
    return b'{"jsonrpc":"2.0","id":"r","method":"_t/request","params":%b}' % params


def note(params):
    return b'{"jsonrpc":"2.0","method":"_t/note","params":%b}' % params


@given(
    st.lists(st.sampled_from(NESTED), max_size=4),
    st.lists(raw_json.objects | raw_json.arrays, min_size=1, max_size=5),
    st.sampled_from([7, 1000, 65536]),
)
def test_any_value_survives_any_chain(kinds, values, capacity):
    payloads = [value.encode() for value in values]

    back = travel(
        kinds,
        [line for p in payloads for line in (request(p), note(p), note(p))],
        capacity=capacity,
    )

    expected = [member for payload in payloads for member in (payload, payload, payload)]
    assert [message.get("result", message.get("params")) for message in back] == expected


@pytest.mark.parametrize("kinds", [[], *([kind] * 4 for kind in KINDS), NESTED])
@pytest.mark.parametrize(
    "params",
    [
        b"[18446744073709551616,1e400,-0,1.10,1E+2,-1e-400]",
        rb'{"b":1,"a":2,"a":3,"\u0061":4}',
        rb'["\ud83d","\udead\ud800","\ud83d\ude00","\u00e9","\/","\u0000"]',
        b'{ "spaced" : [ 1 , 2 ] ,\t"_meta" : null }',
        b'["%s"]' % (b"9" * 200_000),
        b"[%s]" % (b"9" * 5000),
        raw_json.nested(200),
    ],
)
def test_odd_values_survive(kinds, params):
    back = travel(kinds, [request(params), note(params)])

    assert [message.get("result", message.get("params")) for message in back] == [params, params]


LARGE = b'{"n":1e400,"n":12345678901234567890,"text":"%b"}' % (
    "café \\u00e9 \\ud83d \\n".encode() * 10_000
)


@pytest.mark.parametrize("kinds", [["proxy"], ["proxy", "_proxy", "proxy"]])
def test_a_large_value_survives(kinds):
    back = travel(kinds, [request(LARGE), note(LARGE)])

    assert [message.get("result", message.get("params")) for message in back] == [LARGE, LARGE]


class Changing(PassProxy):
    """Sends notifications on with one byte of their params changed."""

    at: int = -10
    byte: bytes = b"x"

    def forward(self, message, *, toward_agent):
        if "id" not in message:
            params = bytearray(message["params"])
            params[self.at] = ord(self.byte)
            message = {**message, "params": bytes(params)}
        super().forward(message, toward_agent=toward_agent)


@pytest.mark.parametrize(
    ("at", "byte", "reported"),
    [
        (-10, b"y", None),
        (-1, b"]", "malformed message"),
        (100, b'"', "malformed message"),
        (-100, b"\xff", "malformed message"),
        (5, b"\0", "malformed message"),
    ],
)
def test_a_large_value_that_a_proxy_changes_is_checked_again(at, byte, reported):
    async def main():
        changing = MemoryComponent("p", make_peer=Changing)
        agent = MemoryComponent("agent", "agent", make_peer=EchoAgent)
        async with running_chain([changing, agent]) as harness:
            await harness.send(INITIALIZE)
            await harness.client.receive_line()
            changing.peer.at, changing.peer.byte = at, byte
            harness.client.send_line(note(b'{"text":"%b"}' % (b"x" * 100_000)))
            harness.client.send_line(request(b"{}"))
            await harness.send()
            came = [cut(line).get("method") for line in harness.client.lines]
            return came, [event for event, _ in changing.reports]

    came, reports = trio.run(main, clock=MockClock(autojump_threshold=0))
    note_came = [] if reported else [b'"_t/note"']
    assert (came, reports) == ([*note_came, None], [reported] if reported else [])


@pytest.mark.parametrize("kinds", [[], ["proxy", "_proxy"], ["idle"], ["handlers"], ["nested"]])
@pytest.mark.parametrize(
    "error",
    [
        b'{"code":-32002,"message":"no","data":{"uri":"x","n":1e400},"more":[1]}',
        rb'{ "message" : "half \ud83d" , "code" : 7 }',
        b'{"code":123456789012345678901234567890,"message":"big"}',
    ],
)
def test_errors_come_back_unchanged(kinds, error):
    async def main():
        async with running_chain(echoing(kinds)) as harness:
            await harness.send(INITIALIZE)
            await harness.client.receive_line()
            harness.agent.error = error
            harness.client.send_line(b'{"jsonrpc":"2.0","id":1,"method":"session/prompt"}')
            return cut(await harness.client.receive_line())

    assert trio.run(main, clock=MockClock(autojump_threshold=0))["error"] == error


def test_an_error_re_raised_by_a_handler_keeps_its_code_message_and_data():
    """A handler re-raises the exception; what it holds comes back, if not in the same bytes."""
    error = rb'{"code":-32002,"message":"half \ud83d","data":["\udead",18446744073709551616]}'

    async def main():
        async with running_chain(echoing(["handlers"])) as harness:
            await harness.send(INITIALIZE)
            await harness.client.receive_line()
            harness.agent.error = error
            harness.client.send_line(request(b"{}"))
            return await harness.client.receive()

    reply = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert reply["error"] == {
        "code": -32002,
        "message": "half \ud83d",
        "data": ["\udead", 18446744073709551616],
    }


DEEP = [
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1,"x":%b}}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s","x":%b}}',
    b'{"jsonrpc":"2.0","id":"new %d","method":"session/new","params":{"x":%b}}',
    b'{"jsonrpc":"2.0","id":"prompt %d","method":"session/prompt","params":{"x":%b}}',
    b'{"jsonrpc":"2.0","id":"other %d","method":"_x","params":{"x":%b}}',
]


@pytest.mark.parametrize("kinds", [[], ["proxy"], ["handlers"]])
@pytest.mark.parametrize("refused", [pytest.param(False, marks=pytest.mark.slow), True])
def test_json_at_the_nesting_limit_does_not_close_the_connection(kinds, refused):
    """A second reader deeper in the call stack may fail to parse it."""
    limit = min(raw_json.deepest(), 20_000)  # or the peers of the test cannot read it (Python 3.14)
    # With what the calls need that one is down, where they count.
    depths = range(limit - 250, limit + 100) if limit < 1000 else range(limit - 40, limit + 20)

    async def main():
        async with running_chain(echoing(kinds)) as harness:
            harness.client.send_line(
                b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"_meta":%b}}'
                % raw_json.nested(limit - 80)
            )
            await harness.send()
            for depth in depths:
                deep = raw_json.nested(depth)
                if refused:
                    harness.agent.error = b'{"code":1,"message":"no","data":%b}' % deep
                for line in DEEP:
                    given = (depth, deep) if b"%d" in line else (deep,)
                    harness.client.send_line(line % given)
                await harness.send()
            harness.client.send_line(request(b"{}"))
            await harness.send()
            return [cut(line).get("id") for line in harness.client.lines]

    ids = [id for id in trio.run(main, clock=MockClock(autojump_threshold=0)) if id is not None]
    answered = Counter(ids)
    answered.pop(b"null", 0)  # notifications that could not be read
    assert set(answered.values()) == {1}
    assert b'"r"' in answered
    assert len(answered) == 3 * len(depths) + 2  # also of what is too deep the id can be read
