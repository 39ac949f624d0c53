"""Random interleavings of clients, proxies and agents, against a model.

Checked at the end of every run: each request was answered exactly once, by the actor that the plan
names; between any two neighbouring witnesses, the messages written equal the messages read, in the
same order, responses included, with any plugins between them; payloads are unchanged; a
cancellation arrived at most once.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import trio
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.memory_chain import running_chain
from support.peers.wire import MemoryComponent
from support.plugins import Idle, plugin
from trio.testing import MockClock, wait_all_tasks_blocked

from .actor_model import End, Hop, PlanProxy, World

KINDS = ["proxy", "_proxy", "idle", "plans"]
REORDERING = {"release", "ask", "back"}
"""What a plugin may do to a message so that later ones overtake it; "hold" keeps its lane."""
ENDING = {"answer", "refuse", "crash", "drop"}
"""What keeps a message from going on."""

_hops = st.sampled_from(["0", "1", "2", "3"])
_actions = st.sampled_from(
    ["hold", "release", "answer", "refuse", "crash", "drop", "ask", "back", "notes"]
)
_plans = st.tuples(
    st.dictionaries(_hops, _actions, max_size=2), st.sampled_from(["now", "now", "later", "refuse"])
)
_sessions = st.sampled_from(["s1", "s2"])
_who = st.sampled_from(["client", "agent"])
_small = st.integers(0, 20)
_message = st.tuples(
    st.sampled_from(["request", "note", "again"]), st.booleans(), _sessions, _plans
)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("send"), _who, _message),
        st.tuples(st.just("send"), _who, _message),
        st.tuples(st.just("batch"), _who, st.lists(_message, min_size=1, max_size=4)),
        st.tuples(st.just("cancel"), _who, _small),
        st.tuples(st.just("release"), st.none(), _small),
        st.tuples(st.just("settle"), st.none(), st.none()),
        st.tuples(st.just("steps"), st.none(), st.integers(1, 5)),
    ),
    max_size=25,
)


def make(world, kinds, capacity):
    components = []
    for hop, kind in enumerate(kinds):
        if kind == "idle":
            components.append(plugin(f"p{hop}", Idle()))
        elif kind == "plans":
            components.append(plugin(f"p{hop}", PlanProxy(world, hop)))
        else:
            components.append(
                MemoryComponent(
                    f"p{hop}",
                    dialect=kind,
                    capacity=capacity,
                    make_peer=lambda t, name, hop=hop: Hop(t, f"p{hop}", world=world, hop=hop),
                )
            )
    agent = MemoryComponent(
        "agent",
        "agent",
        capacity=capacity,
        make_peer=lambda t, name: End(t, "agent", world=world, toward="left", started=True),
    )
    return [*components, agent]


def line_of(end, message, numbers, *, batched=False):
    kind, free, session, (plan, how) = message
    plan = {**plan, "end": how, "from": end.name}
    if kind == "note":
        return end.message(session, plan, None, free=free, batched=batched)
    if kind == "request" or not end.mine:
        numbers[end.name] = numbers.get(end.name, -1) + 1
        id = b"%d" % numbers[end.name] if numbers[end.name] % 3 else b'"%d"' % numbers[end.name]
    else:
        id = end.mine[-1][0]
    return end.message(session, plan, id, free=free, batched=batched)


async def play(world, kinds, capacity, operations, *, lost=None):
    client = partial(End, world=world, toward="right")
    built = lambda: make(world, kinds, capacity)  # noqa: E731
    async with running_chain(built, capacity=capacity, client=client, stop_timeout=1.0) as harness:
        init = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
        harness.client.send_line(init)
        await wait_all_tasks_blocked()
        assert harness.client.started
        ends = {"client": harness.client, "agent": harness.agent}
        numbers = {}
        for name, who, what in operations:
            if name == "send":
                ends[who].send_line(line_of(ends[who], what, numbers))
            elif name == "batch":
                lines = [line_of(ends[who], each, numbers, batched=True) for each in what]
                ends[who].send_line(b"[" + b",".join(lines) + b"]")
            elif name == "cancel":
                ends[who].cancel(what)
            elif name == "release":
                world.release(what)
            elif name == "settle":
                await wait_all_tasks_blocked()
            else:
                for _ in range(what):
                    await trio.lowlevel.checkpoint()
        if lost is not None:
            world.ending = True
            harness.peer(lost).transport.close()
            await harness.wait_ended()
            await harness.client.wait_end()
            return
        await wait_all_tasks_blocked()
        while world.held:
            world.release(0)
            await wait_all_tasks_blocked()


def run(seed, *args, **kwargs):
    world = World()

    async def main():
        trio._core._run._r.seed(seed)
        await play(world, *args, **kwargs)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return world


@settings(max_examples=250)
@given(
    st.lists(st.sampled_from(KINDS), max_size=4),
    st.sampled_from([50, 300, 65536]),
    _operations,
    st.integers(0, 1000),
)
def test_every_request_is_answered_once_and_order_is_kept(kinds, capacity, operations, seed):
    world = run(seed, kinds, capacity, operations)

    open_ids = {who: +ids for who, ids in world.open.items() if +ids}
    assert open_ids == {}
    for (who, id), tags in world.tags.items():
        assert len(tags) == world.anonymous[who, id]
    for who, tag, said in world.answers:
        check_answer(world, kinds, who, tag, said)
    witnesses = [
        ("client", -1),
        *((f"p{hop}", hop) for hop, kind in enumerate(kinds) if kind in ("proxy", "_proxy")),
        ("agent", len(kinds)),
    ]
    for (left, start), (right, stop) in pairwise(witnesses):
        between = [hop for hop in range(start + 1, stop) if kinds[hop] == "plans"]
        check_order(world, between, world.sent[left]["right"], world.came[right]["right"])
        check_order(world, between, world.sent[right]["left"], world.came[left]["left"])
    event(f"messages: {min(world.last_tag, 20)}")


def check_answer(world, kinds, who, tag, said):
    """The response is that of the actor that the plan says answers the request."""
    if world.is_cancelled(tag) or tag in world.parents:
        return
    plan = world.params[tag]["plan"]
    blind = {"idle", "plans"} if tag in world.free else {"idle"}
    hops = [(hop, plan.get(str(hop))) for hop, kind in enumerate(kinds) if kind not in blind]
    if plan.get("from") == "agent":
        hops.reverse()
    ending = [(hop, what) for hop, what in hops if what in ENDING - {"drop"}]
    ends = {"client": "agent", "agent": "client"}
    if ending and who in ends:
        hop, what = ending[0]
        if what == "answer":
            assert said == {"tag": tag, "by": f"p{hop}"}
        else:
            crashed = what == "crash" and kinds[hop] == "plans"
            assert said["error"] == (-32603 if crashed else -32000)
    elif who in ends:
        refused = plan["end"] == "refuse"
        assert said == ({"tag": tag, "error": -32000} if refused else {"tag": tag, "by": ends[who]})


def check_order(world, between, sent, came):
    """Received messages equal sent ones, in order; plugins in between followed their plans."""
    assert len(set(sent)) == len(sent), "something was sent twice"
    assert len(set(came)) == len(came), "something came twice"

    def plan_of(item):
        plan = {} if item[1] in world.free else world.params[item[1]]["plan"]
        return {plan.get(str(hop)) for hop in between}

    arrived, written = set(came), set(sent)
    nameless = {tag for tags in world.tags.values() for tag in tags}
    for item in sent:
        if item not in arrived:
            taken = item[0] == "answer" and (item[1] in world.parents or item[1] in nameless)
            allowed = taken or world.is_cancelled(item[1]) or plan_of(item) & ENDING
            assert allowed, f"{item} was lost"
    for item in came:
        if item not in written:
            assert between, f"{item} came out of nowhere"
    strict = [
        item
        for item in sent
        if item in arrived
        and (
            item[1] not in world.batched if item[0] == "answer" else not plan_of(item) & REORDERING
        )
    ]
    kept = set(strict)
    assert [item for item in came if item in kept] == strict


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(KINDS), max_size=3),
    _operations,
    st.integers(0, 1000),
    st.integers(0, 3),
)
def test_every_request_of_the_client_is_answered_once_when_a_component_is_lost(
    kinds, operations, seed, lost
):
    wires = [hop for hop, kind in enumerate(kinds) if kind in ("proxy", "_proxy")] + [len(kinds)]

    world = run(seed, kinds, 65536, operations, lost=wires[lost % len(wires)])

    assert +world.open["client"] == {}
