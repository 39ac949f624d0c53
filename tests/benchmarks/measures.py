"""The measures: each drives a subject in one way, and returns numbers.

`cpu` is microseconds of the subject's own CPU per message, `rate` messages per second, `p50` the
median round trip in microseconds. A message counts once, where it crosses the client's edge,
however many proxies it passes. What comes back is checked when the clock has stopped: an
update that is missing or altered fails the measure, a relay that changes their order is named.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import attrs

from .agent import filler
from .client import Client, Failed, Usage, alarm, memory

__all__ = ["LOADS", "MEASURES", "Load", "Measure", "Numbers", "open_sessions"]

Numbers = dict[str, float]
LARGE = 1 << 20
_SESSIONS = 20
STILL = 0.5
"""Seconds without growth after which the buffers of a subject count as full."""


@attrs.frozen
class Measure:
    """`run` gets a command, and how many messages to send: `count` times the scale."""

    name: str
    title: str
    run: Callable[[Sequence[str], int], Numbers]
    count: int
    shown: Mapping[str, str]
    """The numbers that the report shows, with their units."""

    def __call__(self, command: Sequence[str], scale: float = 1.0) -> Numbers:
        with alarm():
            return self.run(command, max(1, int(self.count * scale)))


@attrs.frozen
class Load:
    """What a client with twenty open sessions does with a subject that runs."""

    name: str
    title: str
    drive: Callable[[Client, Sequence[str], int], Numbers]
    """Gets the client, its sessions, and how many messages to send."""
    count: int
    shown: Mapping[str, str]

    def measure(self) -> Measure:
        """The load alone, on a subject of its own."""

        def run(command: Sequence[str], count: int) -> Numbers:
            with Client(command) as client:
                opened = open_sessions(client)
                self.drive(client, opened, max(1, count // 20))
                return self.drive(client, opened, count)

        return Measure(self.name, self.title, run, self.count, self.shown)


def open_sessions(client: Client) -> list[str]:
    client.initialize()
    return [client.open() for _ in range(_SESSIONS)]


def round_trips(client: Client, sessions: Sequence[str], count: int) -> Numbers:
    prompts = [client.prompt(sessions[0], "echo") for _ in range(count)]
    times, answers = [], []
    usage = Usage(client.pid)
    for prompt in prompts:
        begin = time.perf_counter()
        client.write(prompt)
        answers.append(client.read())
        times.append(time.perf_counter() - begin)
    numbers = usage.end(2 * count)
    _check_answers(answers, prompts)
    return {"p50": statistics.median(times) * 1e6, **numbers}


def stream(size: int, verb: str = "stream") -> Callable[[Client, Sequence[str], int], Numbers]:
    """Updates with this much text, all for one prompt."""

    def drive(client: Client, sessions: Sequence[str], count: int) -> Numbers:
        prompt = client.prompt(sessions[0], f"{verb} {count} {size}")
        usage = Usage(client.pid)
        client.write(prompt)
        lines = client.lines(count + 1)
        numbers = usage.end(count + 2)
        return {**numbers, **_check_stream(lines, count, size)}

    return drive


def upload(client: Client, sessions: Sequence[str], count: int) -> Numbers:
    """Large prompts, one after the other."""
    text = "echo " + json.loads(b'"%b"' % filler(LARGE))
    prompts = [client.prompt(sessions[0], text) for _ in range(count)]
    answers = []
    usage = Usage(client.pid)
    for prompt in prompts:
        client.write(prompt)
        answers += client.lines(1)
    numbers = usage.end(2 * count)
    _check_answers(answers, prompts)
    return numbers


def questions(client: Client, sessions: Sequence[str], count: int) -> Numbers:
    """The agent asks for permission, again and again."""
    result = b',"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}\n'
    prompt = client.prompt(sessions[0], f"ask {count}")
    times = []
    usage = Usage(client.pid)
    client.write(prompt)
    (line,) = client.lines(1)
    for _ in range(count):
        id = json.dumps(json.loads(line)["id"]).encode()
        begin = time.perf_counter()
        client.write(b'{"jsonrpc":"2.0","id":%b%b' % (id, result))
        (line,) = client.lines(1)
        times.append(time.perf_counter() - begin)
    numbers = usage.end(2 * count + 2)
    _check_answers([line], [prompt])
    return {"p50": statistics.median(times) * 1e6, **numbers}


def mixed(client: Client, sessions: Sequence[str], count: int) -> Numbers:
    """Twenty sessions, each with a prompt of ten updates under way."""
    chunks, size, at_once = 10, 200, len(sessions)
    texts = [client.prompt(sessions[i % at_once], f"stream {chunks} {size}") for i in range(count)]
    prompts = iter(texts)
    usage = Usage(client.pid)
    client.write(b"".join(islice(prompts, at_once)))
    received = []
    for chunk in client.chunks(count * (chunks + 1)):
        received.append(chunk)
        if answered := chunk.count(b'"end_turn"'):
            client.write(b"".join(islice(prompts, answered)))
    numbers = usage.end(count * (chunks + 2))
    lines = b"".join(received).splitlines()
    _check_answers([line for line in lines if b'"end_turn"' in line], texts)
    return numbers


def slow_client(command: Sequence[str], count: int) -> Numbers:
    """A long stream that the client does not read until the subject's buffers are full."""
    with Client(command) as client:
        session = open_sessions(client)[0]
        before = memory(client.pid)["now"]
        client.write(client.prompt(session, f"stream {count} {LARGE}"))
        _wait_until_still(client.pid)
        for _ in client.chunks(count + 1):
            pass
        return {"growth": memory(client.pid)["peak"] - before, **memory(client.pid)}


def start(command: Sequence[str], count: int) -> Numbers:
    """From the start of the process to the answer to `initialize`, and from the end of its input
    to its own end."""
    starts, ends, idle = [], [], 0.0
    for _ in range(count):
        with Client(command) as client:
            starts.append(client.initialize() * 1e3)
            client.open()
            idle = memory(client.pid)["now"]
            ends.append(client.stop() * 1e3)
    return {"start": statistics.median(starts), "exit": statistics.median(ends), "idle": idle}


_STREAM = {"cpu": "CPU µs/message", "rate": "messages/s"}
_ROUND_TRIP = {"cpu": "CPU µs/message", "p50": "p50 µs"}

LOADS = {
    load.name: load
    for load in (
        Load("round-trip", "a prompt and its answer", round_trips, 2000, _ROUND_TRIP),
        Load("question", "a permission request", questions, 2000, _ROUND_TRIP),
        Load("small", "updates of 100 B", stream(100), 50_000, _STREAM),
        Load("single", "updates of 100 B, one write each", stream(100, "flush"), 10_000, _STREAM),
        Load("medium", "updates of 4 KiB", stream(4096), 10_000, _STREAM),
        Load("large", "updates of 1 MiB", stream(LARGE), 40, _STREAM),
        Load("upload", "prompts of 1 MiB", upload, 40, _STREAM),
        Load("sessions", "20 sessions at once", mixed, 2000, _STREAM),
    )
}
MEASURES = [
    *(load.measure() for load in LOADS.values()),
    Measure(
        "start",
        "start and end",
        start,
        5,
        {"start": "start ms", "exit": "exit ms", "idle": "idle MB"},
    ),
    Measure(
        "slow-client", "200 MB unread", slow_client, 200, {"peak": "peak MB", "growth": "growth MB"}
    ),
]


def _check_stream(lines: Sequence[bytes], count: int, size: int) -> Numbers:
    text = json.loads(b'"%b"' % filler(size))
    found, answered = [], -1
    for index, line in enumerate(lines):
        params = json.loads(line).get("params")
        if params is None:
            answered = index
            continue
        chunk = params["update"]["content"]["text"]
        found.append(int(chunk[:8]))
        if chunk[8:] != text:
            raise Failed("an update was altered")
    if sorted(found) != list(range(count)):
        raise Failed("updates were lost or doubled")
    return {} if answered == count and found == sorted(found) else {"reordered": 1.0}


def _check_answers(answers: Sequence[bytes], prompts: Sequence[bytes]) -> None:
    answered = sorted(json.loads(line)["id"] for line in answers)
    if answered != [json.loads(prompt)["id"] for prompt in prompts]:
        raise Failed("prompts were not answered, or answered twice")


def _wait_until_still(pid: int) -> None:
    last, since = 0.0, time.perf_counter()
    while time.perf_counter() - since < STILL:
        time.sleep(0.05)
        now = memory(pid)["now"]
        if now > last + 0.1:
            last, since = now, time.perf_counter()
