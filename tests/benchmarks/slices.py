"""Compares the CPU time of conductors with and without recording, in short slices of one load.

A machine that is shared changes its speed within seconds, and two equal conductors differ by up to
a quarter for as long as they run, by the memory that they happen to get; at the same addresses, by
up to 7 %, which is the same at each start. So each is compared with itself: a signal switches its
recording on and off between slices of some milliseconds, A B B A. Two slices without recording
differ by up to 1 % in the median of a start. What recording costs depends on the start, by some
hundredths, so there are several.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import attrs

from .client import Client, alarm, cpu_ns
from .measures import LARGE
from .switched import OFF, ON

__all__ = ["LOADS", "Costs", "Load", "costs_in_slices"]

_IDLE_NS = 100_000
"""CPU time in `_PAUSE` below which a conductor is idle: it has timers."""
_PAUSE = 0.01
_DELAY = 0.03
"""Seconds after which the thread of a trace has begun to write."""


@attrs.frozen
class Load:
    """`run` drives a client whose session is open, and returns the number of messages."""

    title: str
    run: Callable[[Client, str], int]
    sessions: int = 1


@attrs.define
class Costs:
    """CPU per message of each conductor in microseconds, with recording and without: one list for
    each start, of its slices."""

    on: dict[str, list[list[float]]] = attrs.field(factory=dict)
    off: dict[str, list[list[float]]] = attrs.field(factory=dict)

    def lowest(self, name: str) -> float:
        """The lowest median of a start."""
        return min(map(statistics.median, self.on[name]))

    def lowest_off(self) -> float:
        return min(statistics.median(each) for starts in self.off.values() for each in starts)

    def ratios(self, name: str) -> list[float]:
        """The median of the ratios of neighbouring slices, for each start, sorted."""
        return sorted(
            statistics.median(on / off for on, off in zip(*slices, strict=True))
            for slices in zip(self.on[name], self.off[name], strict=True)
        )

    def ratio(self, name: str) -> float:
        return statistics.median(self.ratios(name))


def costs_in_slices(
    commands: Mapping[str, Sequence[str]], load: Load, *, starts: int, slices: int
) -> Costs:
    """Drive all conductors (`switched`) in turn; the first slices of each are not counted."""
    costs = Costs({name: [] for name in commands}, {name: [] for name in commands})
    for _ in range(starts):
        with ExitStack() as stack, alarm():
            clients = {name: stack.enter_context(Client(each)) for name, each in commands.items()}
            sessions = {}
            for name, client in clients.items():
                client.initialize()
                opened = [client.open() for _ in range(load.sessions)]
                sessions[name] = opened[0]
                costs.on[name].append([])
                costs.off[name].append([])
            for number in range(slices + 1):
                for name, client in clients.items():
                    for is_on in (True, False) if number % 2 else (False, True):
                        os.kill(client.pid, ON if is_on else OFF)
                        time.sleep(_PAUSE)
                        cost = _run(client, load, sessions[name])
                        if number:
                            (costs.on if is_on else costs.off)[name][-1].append(cost)
    return costs


def _run(client: Client, load: Load, session: str) -> float:
    """CPU per message of one slice, with what follows it."""
    before = cpu_ns(client.pid)
    messages = load.run(client, session)
    time.sleep(_DELAY)
    last = cpu_ns(client.pid)
    while True:
        time.sleep(_PAUSE)
        now = cpu_ns(client.pid)
        if now - last < _IDLE_NS:
            return (now - before) / messages / 1e3
        last = now


def _echo(count: int, text: str = "echo") -> Callable[[Client, str], int]:
    def run(client: Client, session: str) -> int:
        for _ in range(count):
            client.write(client.prompt(session, text))
            client.lines(1)
        return 2 * count

    return run


def _stream(count: int, size: int, verb: str = "stream") -> Callable[[Client, str], int]:
    def run(client: Client, session: str) -> int:
        client.write(client.prompt(session, f"{verb} {count} {size}"))
        for _ in client.chunks(count + 1):
            pass
        return count + 2

    return run


def _ask(count: int) -> Callable[[Client, str], int]:
    answer = b',"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}\n'

    def run(client: Client, session: str) -> int:
        client.write(client.prompt(session, f"ask {count}"))
        for _ in range(count):
            (line,) = client.lines(1)
            id = line[line.index(b'"id":') + 5 : line.index(b',"method"')]
            client.write(b'{"jsonrpc":"2.0","id":%b%b' % (id, answer))
        client.lines(1)
        return 2 * count + 2

    return run


def _mixed(count: int, at_once: int = 20) -> Callable[[Client, str], int]:
    def run(client: Client, session: str) -> int:
        names = [f"session-{number}" for number in range(1, at_once + 1)]
        prompts = [client.prompt(names[i % at_once], "stream 10 200") for i in range(count)]
        client.write(b"".join(prompts[:at_once]))
        done = at_once
        for chunk in client.chunks(count * 11):
            if answered := chunk.count(b'"end_turn"'):
                client.write(b"".join(prompts[done : done + answered]))
                done += answered
        return count * 12

    return run


LOADS = {
    "round-trip": Load("a prompt and its answer", _echo(300)),
    "question": Load("a permission request", _ask(300)),
    "small": Load("updates of 100 B", _stream(20_000, 100)),
    "single": Load("updates of 100 B, one write each", _stream(4000, 100, "flush")),
    "medium": Load("updates of 4 KiB", _stream(2000, 4096)),
    "large": Load("updates of 1 MiB", _stream(8, LARGE)),
    "upload": Load("prompts of 1 MiB", _echo(8, "echo " + "The quick brown fox. " * (LARGE // 21))),
    "sessions": Load("20 sessions at once", _mixed(500), sessions=20),
}
