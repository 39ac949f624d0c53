"""Any JSON value survives the trip through any chain, byte for byte (invariant 3)."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support import raw_json
from support.component import MemoryComponent
from support.plugins import Idle, PassAll, plugin
from support.raw_json import cut
from support.raw_peers import EchoAgent, PassProxy
from support.table import INITIALIZE, seated
from trio.testing import MockClock

KINDS = ["proxy", "_proxy", "idle", "handlers"]


def build(kinds, capacity):
    def make():
        proxies = [
            plugin(f"p{index}", Idle() if kind == "idle" else PassAll())
            if kind in ("idle", "handlers")
            else MemoryComponent(f"p{index}", dialect=kind, make_peer=PassProxy, capacity=capacity)
            for index, kind in enumerate(kinds)
        ]
        agent = MemoryComponent("agent", "agent", make_peer=EchoAgent, capacity=capacity)
        return [*proxies, agent]

    return make


def travel(kinds, lines, *, capacity=65536, bridged=False):
    """What comes back to the client for these lines, as raw members."""

    async def main():
        async with seated(build(kinds, capacity), capacity=capacity, bridged=bridged) as table:
            await table.send(INITIALIZE)
            assert cut(await table.client.receive_line())["result"] == b'{"protocolVersion":1}'
            for line in lines:
                table.client.send_line(line)
            await table.send()
            back = [cut(line) for line in table.client.lines]
            table.client.lines.clear()
            return back

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def request(params):
    return b'{"jsonrpc":"2.0","id":"r","method":"_t/request","params":%b}' % params


def note(params):
    return b'{"jsonrpc":"2.0","method":"_t/note","params":%b}' % params


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(KINDS), max_size=4),
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


@pytest.mark.parametrize("kinds", [[], *([kind] * 4 for kind in KINDS), KINDS])
@pytest.mark.parametrize(
    "params",
    [
        b"[18446744073709551616,1e400,-0,1.10,1E+2,-1e-400]",
        rb'{"b":1,"a":2,"a":3,"\u0061":4}',
        rb'["\ud83d","\udead\ud800","\ud83d\ude00","\u00e9","\/","\u0000"]',
        b'{ "spaced" : [ 1 , 2 ] ,\t"_meta" : null }',
        b'["%s"]' % (b"9" * 200_000),
        b"[%s]" % (b"9" * 5000),
        b"[" * 200 + b"]" * 200,
    ],
)
def test_odd_values_survive(kinds, params):
    back = travel(kinds, [request(params), note(params)])

    assert [message.get("result", message.get("params")) for message in back] == [params, params]


@pytest.mark.parametrize("kinds", [[], ["proxy", "_proxy"], ["idle"], ["handlers"]])
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
        async with seated(build(kinds, 65536), bridged=False) as table:
            await table.send(INITIALIZE)
            await table.client.receive_line()
            table.agent.error = error
            table.client.send_line(b'{"jsonrpc":"2.0","id":1,"method":"session/prompt"}')
            return cut(await table.client.receive_line())

    assert trio.run(main, clock=MockClock(autojump_threshold=0))["error"] == error


def test_an_error_that_a_handler_passes_on_keeps_its_meaning():
    """A handler re-raises the exception; what it holds comes back, if not in the same bytes."""
    error = rb'{"code":-32002,"message":"half \ud83d","data":["\udead",18446744073709551616]}'

    async def main():
        async with seated(build(["handlers"], 65536)) as table:
            await table.send(INITIALIZE)
            await table.client.receive_line()
            table.agent.error = error
            table.client.send_line(request(b"{}"))
            return await table.client.receive()

    reply = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert reply["error"] == {
        "code": -32002,
        "message": "half \ud83d",
        "data": ["\udead", 18446744073709551616],
    }
