"""Random schedules: the lane rules hold for any order of waits and responses.

Each message carries the script of its handler. The ends of the hop send, answer and cancel at
random; the lane model gets each event in order.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from support.peers.port import End, Hop, hop
from trio.testing import wait_all_tasks_blocked

from conductor.proxy import Proxy, RequestError, on

TO_AGENT, TO_CLIENT = "toward the agent", "toward the client"
OTHER = {TO_AGENT: TO_CLIENT, TO_CLIENT: TO_AGENT}


class BrokenRule(AssertionError):
    pass


@attrs.define
class Lanes:
    """The model of the rules: it accepts an event, or raises with the rule that forbids it.

    Names stand for messages; an answer is called `answer(name)`.
    """

    waiting: dict[str, deque[str]] = attrs.field(
        factory=lambda: {TO_AGENT: deque(), TO_CLIENT: deque()}
    )
    holder: dict[str, str | None] = attrs.field(factory=lambda: {TO_AGENT: None, TO_CLIENT: None})

    def arrive(self, lane: str, item: str) -> None:
        self.waiting[lane].append(item)

    def withdraw(self, lane: str, item: str) -> None:
        """It was cancelled while it waited in its lane."""
        self.waiting[lane].remove(item)

    def waits(self, lane: str, item: str) -> bool:
        return item in self.waiting[lane]

    def passes(self, lane: str, item: str) -> None:
        """It was forwarded without being handled."""
        self._turn_of(lane, item)

    def begins(self, lane: str, item: str) -> None:
        self._turn_of(lane, item)
        self.holder[lane] = item

    def resumes(self, lane: str, item: str, answer: str) -> None:
        """The handler of `item` has the response that it awaited."""
        self._turn_of(lane, answer)
        if item in self.holder.values():
            raise BrokenRule(f"{item} waited, and held a lane")
        self.holder[lane] = item

    def lets_go(self, item: str) -> None:
        """Its handler waits for an answer, released its lane, or has ended."""
        for lane, holder in self.holder.items():
            if holder == item:
                self.holder[lane] = None

    def check_empty(self) -> None:
        if any(self.waiting.values()) or any(self.holder.values()):
            raise BrokenRule(f"left over: {self.waiting}, {self.holder}")

    def _turn_of(self, lane: str, item: str) -> None:
        if self.holder[lane] is not None:
            raise BrokenRule(f"{item} had its turn {lane}, which {self.holder[lane]} holds")
        if not self.waiting[lane] or self.waiting[lane][0] != item:
            raise BrokenRule(f"{item} had its turn {lane} before {list(self.waiting[lane])}")
        self.waiting[lane].popleft()


STEPS = st.lists(
    st.sampled_from(["forward", "agent", "client", "hidden", "own", "release", "fail"]), max_size=4
)
SENDS = st.tuples(
    st.sampled_from(["notify", "ask"]),
    st.sampled_from([TO_AGENT, TO_CLIENT]),
    st.one_of(st.none(), STEPS),  # None: no handler
)
DOES = st.tuples(
    st.sampled_from(["answer", "answer", "open", "cancel", "settle"]),
    st.sampled_from([TO_AGENT, TO_CLIENT]),
    st.integers(0, 9),
)
SCHEDULES = st.lists(st.one_of(SENDS, SENDS, DOES), max_size=30)


@attrs.define(eq=False)
class World:
    lanes: Lanes = attrs.field(factory=Lanes)
    gates: dict[str, trio.Event] = attrs.field(factory=dict)
    """Events that handlers wait for, other than responses."""
    asked: Counter[str] = attrs.field(factory=Counter)
    broken: list[BrokenRule] = attrs.field(factory=list)
    answers: dict[str, list[Any]] = attrs.field(factory=dict)
    """By the names of the requests of the two ends."""
    began: set[str] = attrs.field(factory=set)
    waiting: dict[str, str] = attrs.field(factory=dict)
    """The request that a handler awaits the response of."""
    cancelled: dict[str, str] = attrs.field(factory=dict)
    """Requests that were cancelled, and what their handlers did then."""

    def book(self, event: str, *args: Any) -> None:
        try:
            getattr(self.lanes, event)(*args)
        except BrokenRule as exc:
            self.broken.append(exc)


@attrs.define(eq=False)
class Scripted(Proxy):
    world: World

    @on("_handled", source="client")
    async def from_client(self, params, forward):
        return await self.follow(TO_AGENT, params, forward)

    @on("_handled", source="agent")
    async def from_agent(self, params, forward):
        return await self.follow(TO_CLIENT, params, forward)

    async def follow(self, lane: str, params: dict[str, Any], forward: Any) -> Any:
        world, me = self.world, params["name"]
        world.book("begins", lane, me)
        world.began.add(me)
        try:
            for step in params["script"]:
                await self.step(step, lane, params, forward)
        finally:
            world.book("lets_go", me)
            world.waiting.pop(me, None)
        return {"by": me}

    async def step(self, step: str, lane: str, params: dict[str, Any], forward: Any) -> None:
        world, me, request = self.world, params["name"], params["request"]
        match step:
            case "forward" if request:
                await self.wait_for(forward, OTHER[lane], me, params)
            case "forward":
                await forward()
            case "agent" | "client" as whom:
                peer = self.agent if whom == "agent" else self.client
                came_on = TO_CLIENT if whom == "agent" else TO_AGENT

                async def ask(message: Any) -> Any:
                    return await peer.request("_own", message)

                await self.wait_for(ask, came_on, me, {"name": me})
            case "hidden":

                async def prompt(message: Any) -> Any:
                    async with self.muted("s"):
                        return await self.agent.request("_own", message)

                await self.wait_for(prompt, TO_CLIENT, me, {"name": me})
            case "own":
                await world.gates.setdefault(me, trio.Event()).wait()
            case "release":
                self.release_lane()
                world.book("lets_go", me)
            case "fail":
                raise ValueError("as the script says")

    async def wait_for(self, ask: Any, lane: str, me: str, message: dict[str, Any]) -> None:
        world = self.world
        world.asked[me] += 1
        tag = f"{me}/{world.asked[me]}"
        world.book("lets_go", me)
        world.waiting[me] = tag
        with suppress(RequestError):
            await ask({**message, "tag": tag})
        del world.waiting[me]
        world.book("resumes", lane, me, f"answer({tag})")


class BookingEnd(End):
    """Records in the model the unhandled messages that arrive here, and the messages sent."""

    world: World
    lane: str
    """The lane of its sent messages."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tags: list[str] = []

    def request(self, call: Any, method: str, params: Any) -> None:
        super().request(call, method, params)
        given = self.heard[-1][2]
        if method == "_passing":
            self.world.book("passes", OTHER[self.lane], given["name"])
        self.tags.append(given.get("tag") or given["name"])

    def notify(self, method: str, params: Any) -> None:
        super().notify(method, params)
        if method == "_passing":
            self.world.book("passes", OTHER[self.lane], self.heard[-1][2]["name"])

    def respond(self, call: Any, result: Any, error: Any) -> None:
        super().respond(call, result, error)
        _, name, value = self.heard[-1]
        if call.method == "_passing":
            self.world.book("passes", OTHER[self.lane], f"answer({name})")
        self.world.answers.setdefault(name, []).append(value)

    def answer_one(self, which: int) -> bool:
        if not self.asked:
            return False
        which %= len(self.asked)
        tag = self.tags.pop(which)
        self.world.book("arrive", self.lane, f"answer({tag})")
        self.answer({"to": tag}, which=which)
        return True


async def play(schedule: list[Any], *, settle: bool) -> World:
    world = World()
    calls: dict[str, Any] = {}
    async with hop(Scripted(world), BookingEnd) as made:
        ends = {TO_AGENT: made.client, TO_CLIENT: made.agent}
        for lane, end in ends.items():
            end.world, end.lane = world, lane
        for number, (what, lane, detail) in enumerate(schedule):
            match what:
                case "notify" | "ask":
                    send(world, ends[lane], calls, what, f"{what}{number}", detail)
                case "answer":
                    ends[lane].answer_one(detail)
                case "open":
                    for gate in list(world.gates.values())[detail:]:
                        gate.set()
                case "cancel" if calls:
                    cancel(world, calls, sorted(calls)[detail % len(calls)])
            if settle or what == "settle":
                await made.settle()
        await finish(made, world)
    return world


def send(world: World, end: Any, calls: Any, what: str, name: str, script: Any) -> None:
    method = "_passing" if script is None else "_handled"
    request = what == "ask"
    params = {"name": name, "script": script or [], "request": request}
    world.book("arrive", end.lane, name)
    if request:
        calls[name] = (end.lane, end.ask(method, params, name=name))
    else:
        end.send(method, params)


def cancel(world: World, calls: Any, name: str) -> None:
    lane, call = calls.pop(name)
    if call.answered or call.method == "_passing":
        call.cancel()
        return
    if name not in world.began and world.lanes.waits(lane, name):
        world.cancelled[name] = "in its lane"
        world.book("withdraw", lane, name)
    elif name in world.waiting:
        world.cancelled[name] = "waiting"
    elif name in world.gates and not world.gates[name].is_set():
        world.cancelled[name] = "waiting for its own"
    call.cancel()


async def finish(made: Hop, world: World) -> None:
    """Both ends answer all requests until all tasks are blocked."""
    for _ in range(200):
        await wait_all_tasks_blocked()
        closed = [gate for gate in world.gates.values() if not gate.is_set()]
        for gate in closed:
            gate.set()
        if not any([made.client.answer_one(0), made.agent.answer_one(0), closed]):
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("settle", [True, False])
@given(schedule=SCHEDULES)
@example(  # it is cancelled between the response and the handler's next step
    schedule=[
        ("ask", TO_AGENT, ["forward", "forward"]),
        ("settle", TO_AGENT, 0),
        ("answer", TO_CLIENT, 0),
        ("cancel", TO_AGENT, 0),
    ]
)
def test_the_lane_rules_hold_and_every_request_is_answered_once(settle, schedule):
    world = trio.run(lambda: play(schedule, settle=settle))

    assert world.broken == []
    world.lanes.check_empty()
    asked = {f"ask{number}" for number, (what, *_) in enumerate(schedule) if what == "ask"}
    assert {name: len(answers) for name, answers in world.answers.items()} == dict.fromkeys(
        asked, 1
    )
    for name, state in world.cancelled.items():
        was_cancelled = world.answers[name] == [-32800]
        assert was_cancelled == (state != "waiting"), (name, state)
