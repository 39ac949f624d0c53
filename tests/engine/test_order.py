"""Messages leave each hop in the order in which they came, with the bytes that they came with.

Peers write compact lines, and several lines reach the conductor in one read: it forwards runs of
notifications as blocks. Here runs are cut by everything else that a peer may write between them.
"""

from __future__ import annotations

import json

import pytest
from support.memory_chain import hops, running_chain, start
from support.raw_json import cut
from trio.testing import wait_all_tasks_blocked

CHAINS = [
    [],
    ["proxy"],
    ["_proxy"],
    ["idle"],
    ["updates"],
    ["tool starts"],
    ["nested"],
    ["_proxy", "updates", "nested", "handlers", "proxy"],
]
chains = pytest.mark.parametrize("kinds", CHAINS, ids=" ".join)


def update(n, session="s1", kind="agent_message_chunk"):
    return (
        b'{"sessionId":"%b","update":{"sessionUpdate":"%b","toolCallId":"%d",'
        b'"content":{"type":"text","text":"%d"}}}' % (session.encode(), kind.encode(), n, n)
    )


def note(params, method="session/update"):
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method.encode(), params)


def passed(*params, method="session/update"):
    """Notifications as a peer writes them, and what has to arrive of them."""
    return [(note(each, method), (method, each)) for each in params]


def request(id, params, method="session/request_permission"):
    line = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (id, method.encode(), params)
    return [(line, (method, params))]


def response(open_request, member=b"result", value=b'{"stopReason":"end_turn"}'):
    """The answer to the first or second open request; its id is put in later."""
    line = b'{"jsonrpc":"2.0","id":@%d,"%b":%b}' % (open_request, member, value)
    return [(line, (member.decode(), value))]


def as_written(line, params, method="session/update"):
    """A line in which another peer than the usual one writes this notification."""
    return [(line, (method, params))]


def dropped(line):
    return [(line, None)]


RUN = passed(*map(update, range(3)))
TOOL = passed(update(9, kind="tool_call"))

BLOCKS = {
    "one run": RUN * 3,
    "sessions interleaved": passed(*(update(n, session) for n in range(3) for session in "ab")),
    "updates that some handlers see": [*RUN, *TOOL, *RUN, *TOOL, *TOOL, *RUN],
    "responses between": [*RUN, *response(1), *RUN[:2], *response(2), *RUN[:1]],
    "errors between": [
        *RUN,
        *response(2, b"error", b'{"code":-32000,"message":"no","data":null}'),
        *RUN,
        *response(1),
    ],
    "requests between": [*RUN, *request(7, b'{"sessionId":"s1"}'), *RUN, *request(8, b"[1]")],
    "other methods between": [
        *RUN,
        *passed(b'{"n":1}', method="_x/note"),
        *RUN,
        *passed(b'{"n":2}', b'{"n":3}', method="_x/note"),
        *passed(b'{"n":4}', method="_t/note"),
        *RUN[:2],
        *passed(b'{"n":5}', method="_x/note"),
        *RUN[:1],
    ],
    "invalid UTF-8 between": [
        *RUN,
        *dropped(b'{"jsonrpc":"2.0","method":"session/update","params":{"x":"\xff"}}'),
        *RUN,
    ],
    "noise between": [
        *RUN,
        *dropped(b"Loading model..."),
        *RUN,
        *dropped(b'{"jsonrpc":"2.0","method":"session/update","params":{"cut":'),
        *RUN,
        *dropped(b""),
        *RUN,
        *dropped(b'{"jsonrpc":"2.0","id":77,"result":{}}'),
        *RUN,
    ],
    "other spellings between": [
        *RUN,
        *as_written(b'{ "jsonrpc" : "2.0", "method" : "session/update", "params" : { } }', b"{ }"),
        *RUN,
        *as_written(b'{"method":"session/update","params":{"n":1},"jsonrpc":"2.0"}', b'{"n":1}'),
        *RUN,
        *as_written(rb'{"jsonrpc":"2.0","method":"session\/update","params":{"n":2}}', b'{"n":2}'),
        *RUN,
        *as_written(
            b'{"jsonrpc":"2.0","method":"session/update","params":{"n":3},"more":1}', b'{"n":3}'
        ),
        *RUN,
    ],
    "odd params between": [
        *RUN,
        *passed(b"[1,2]"),
        *RUN,
        *passed(rb'{"text":"half \ud83d"}', b'{"n":1e400,"n":-0}', b'{"a":{"b":[[[]]]}}'),
        *as_written(b'{"jsonrpc":"2.0","method":"session/update"}', None),
        *RUN,
    ],
    "a request that looks like an update": [
        *RUN,
        *as_written(
            b'{"jsonrpc":"2.0","method":"session/update","params":{"n":1},"id":5}', b'{"n":1}'
        ),
        *RUN,
    ],
}


def came(peer):
    """Messages that arrived, without the ids, which are those of each hop."""
    found = []
    for line in peer.lines:
        members = cut(line)
        if "method" in members:
            found.append((members["method"].decode().strip('"'), members.get("params")))
        else:
            (kind,) = members.keys() & {"result", "error"}
            found.append((kind, members[kind]))
    peer.lines.clear()
    return found


def with_method(block, method):
    """The same with another method instead of `session/update`."""
    spellings = (b"session/update", rb"session\/update")
    changed = []
    for line, arrives in block:
        for each in spellings:
            line = line.replace(each, method.encode())
        if arrives is not None and arrives[0] == "session/update":
            arrives = (method, arrives[1])
        changed.append((line, arrives))
    return changed


def expected(block):
    return [arrives for _, arrives in block if arrives is not None]


async def write_at_once(sender, receiver, block):
    """Write a block; its responses answer the open requests of the receiver."""
    receiver.send({"id": "a", "method": "_x/ask"}, {"id": "b", "method": "_x/ask"})
    first, second = [json.dumps(each["id"]).encode() for each in await sender.receive_all()]
    data = b"".join(line + b"\n" for line, _ in block)
    sender.send_bytes(data.replace(b"@1", first).replace(b"@2", second))
    await wait_all_tasks_blocked()


@chains
async def test_what_an_agent_writes_at_once_arrives_in_order_and_unchanged(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        for name, block in BLOCKS.items():
            await write_at_once(harness.agent, harness.client, block)
            assert (name, came(harness.client)) == (name, expected(block))


@chains
async def test_what_a_client_writes_at_once_arrives_in_order_and_unchanged(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        for name, block in BLOCKS.items():
            for method in ("session/cancel", "_t/note"):
                of_client = with_method(block, method)
                await write_at_once(harness.client, harness.agent, of_client)
                assert (name, method, came(harness.agent)) == (name, method, expected(of_client))
                harness.client.lines.clear()  # errors for the noise


@pytest.mark.parametrize(
    "kinds", [[], ["proxy"], ["_proxy"], ["idle"], ["_proxy", "idle", "proxy"]]
)
async def test_a_cancellation_is_reissued_in_its_place_among_notifications(kinds, autojump_clock):
    async with running_chain(hops(*kinds)) as harness:
        await start(harness)
        await harness.send({"id": 1, "method": "session/prompt", "params": {}})
        id = (await harness.agent.receive())["id"]
        cancellation = b'{"requestId":%d}'
        before, after = passed(b'{"n":1}', b'{"n":2}', method="_x/note"), passed(b"{}", method="_x")
        cancel = passed(b'{"requestId":1}', method="$/cancel_request")
        block = [*before, *cancel, *after]

        harness.client.send_bytes(b"".join(line + b"\n" for line, _ in block))
        await harness.send()

        arrives = [*before, *passed(cancellation % id, method="$/cancel_request"), *after]
        assert came(harness.agent) == expected(arrives)
