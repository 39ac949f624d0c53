"""Compares the CPU time of conductors that run at the same time, in short slices of one load.

A machine that is shared changes its speed within seconds. Here all subjects are started, and each
in turn gets a slice of some milliseconds, A B C C B A: what they are compared by is always less
than a second old. They start at the same addresses: with random ones, which Linux gives each
process, two equal conductors differ by up to a quarter for as long as they run. What is left of the
luck of a start is some hundredths, so there are several. The median of all ratios is exact to about
two hundredths, on a busy machine too.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import attrs

from .client import Client, alarm, cpu_ns
from .measures import LARGE

__all__ = ["LOADS", "Costs", "Load", "costs_in_slices", "equal_addresses"]

_IDLE_NS = 100_000
"""CPU time in `_PAUSE` below which a conductor is idle: it has timers."""
_PAUSE = 0.01
_DELAY = 0.03
"""Seconds after which the thread of a trace has begun to write."""
_NO_RANDOMIZATION = 0x0040000
"""`ADDR_NO_RANDOMIZE` of personality(2)."""


@attrs.frozen
class Load:
    """`run` drives a client whose session is open, and returns the number of messages."""

    title: str
    run: Callable[[Client, str], int]
    sessions: int = 1


@attrs.define
class Costs:
    """CPU per message of each subject in microseconds: one list for each start, of its slices."""

    slices: dict[str, list[list[float]]] = attrs.field(factory=dict)

    def lowest(self, name: str) -> float:
        """The lowest median of a start."""
        return min(map(statistics.median, self.slices[name]))

    def ratios(self, name: str, other: str) -> list[float]:
        """The median of the ratios of neighbouring slices, for each start, sorted."""
        return sorted(
            statistics.median(a / b for a, b in zip(mine, its, strict=True))
            for mine, its in zip(self.slices[name], self.slices[other], strict=True)
        )

    def ratio(self, name: str, other: str) -> float:
        return statistics.median(self.ratios(name, other))


def costs_in_slices(
    commands: Mapping[str, Sequence[str]], load: Load, *, starts: int, slices: int
) -> Costs:
    """Drive all commands in turn; the first slice of each is not counted."""
    costs = Costs({name: [] for name in commands})
    for start in range(starts):
        with ExitStack() as stack, equal_addresses(), alarm():
            clients = {name: stack.enter_context(Client(each)) for name, each in commands.items()}
            sessions = {}
            for name, client in clients.items():
                client.initialize()
                opened = [client.open() for _ in range(load.sessions)]
                sessions[name] = opened[0]
                costs.slices[name].append([])
                _run(client, load, sessions[name])
            for number in range(slices):
                names = list(clients) if (number + start) % 2 else list(reversed(clients))
                for name in names:
                    cost = _run(clients[name], load, sessions[name])
                    costs.slices[name][-1].append(cost)
    return costs


@contextmanager
def equal_addresses() -> Iterator[None]:
    """Processes started in the block, and theirs, do not get random addresses, if possible."""
    if sys.platform != "linux":
        yield
        return
    personality = ctypes.CDLL(None).personality
    before = personality(0xFFFFFFFF)
    personality(before | _NO_RANDOMIZATION)
    try:
        yield
    finally:
        personality(before)


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
