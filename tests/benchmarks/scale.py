"""What a message costs as there is more of something: sessions, open requests, proxies, time.

A cost that grows with sessions, open requests or time is a table that is searched, or never
emptied.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import attrs

from .client import Client, Usage, alarm, memory
from .measures import MEASURES
from .subjects import AGENT, conductor

__all__ = ["SCALES", "Scale", "measure_all"]

PATIENCE = 900.0


@attrs.frozen
class Scale:
    name: str
    title: str
    axis: str
    values: Sequence[int]
    run: Callable[[int, float], dict[str, float]]
    """Takes x, and a factor for how much is sent; returns microseconds per message, by series."""


def over_sessions(opened: int, scale: float) -> dict[str, float]:
    """Prompts with ten updates each; every prompt in another session, twenty at a time."""
    count, at_once, updates = int(4000 * scale), 20, 10
    with Client(conductor(0)) as client:
        client.initialize()
        names = _open_many(client, opened)
        prompts = iter(
            [client.prompt(names[i * 7919 % opened], f"stream {updates} 100") for i in range(count)]
        )
        usage = Usage(client.pid)
        client.write(b"".join(islice(prompts, at_once)))
        for chunk in client.chunks(count * (updates + 1)):
            if answered := chunk.count(b'"end_turn"'):
                client.write(b"".join(islice(prompts, answered)))
        return {"prompts with 10 updates": usage.end(count * (updates + 2))["cpu"]}


def over_pending(pending: int, scale: float) -> dict[str, float]:
    """Round trips while so many other requests are open."""
    count = int(4000 * scale)
    with tempfile.TemporaryDirectory() as directory, Client(_unlimited(directory)) as client:
        client.initialize()
        session = client.open()
        for first in range(0, pending, 1000):
            some = range(first, min(first + 1000, pending))
            client.write(b"".join([client.prompt(session, "hold") for _ in some]))
        client.ask("session/new", cwd="/", mcpServers=[])  # they have all arrived
        prompts = [client.prompt(session, "echo") for _ in range(count)]
        usage = Usage(client.pid)
        for prompt in prompts:
            client.write(prompt)
            client.read()
        spent = usage.end(2 * count)["cpu"]
        client.write(client.prompt(session, "release"))
        client.lines(pending + 1)
        return {"round trips": spent}


def _unlimited(directory: str) -> list[str]:
    """The conductor before an agent, with more open requests than it takes by default."""
    chain = Path(directory, "chain.yaml")
    limits = {"max_open_requests": 1_000_000}
    chain.write_text(json.dumps({"version": 1, "limits": limits, "agent": {"run": AGENT}}))
    return [sys.executable, "-m", "conductor", "run", str(chain)]


def over_chain(proxies: int, scale: float) -> dict[str, float]:
    by_name = {measure.name: measure for measure in MEASURES}
    return {
        "round trips": by_name["round-trip"](conductor(proxies), scale)["cpu"],
        "updates of 100 B, × 10": by_name["small"](conductor(proxies), scale)["cpu"] * 10,
    }


def over_time(messages: int, scale: float) -> dict[str, float]:
    """The cost of the last tenth of so many messages, and the memory behind them."""
    each = 10_000
    with Client(conductor(0)) as client:
        client.initialize()
        prompt = client.prompt(client.open(), f"stream {each - 2} 100")
        usage: Usage | None = None
        rest = max(each, int(messages * scale))
        tenth = max(each, rest // 10)
        while rest > 0:
            if usage is None and rest <= tenth:
                usage = Usage(client.pid)
            client.write(prompt)
            for _ in client.chunks(each - 1):
                pass
            rest -= each
        assert usage is not None
        spent = usage.end(tenth)["cpu"]
        return {"updates of 100 B": spent, "memory, MB": memory(client.pid)["now"]}


SCALES = [
    Scale("sessions", "Sessions", "sessions that are open", (1, 100, 10_000), over_sessions),
    Scale(
        "pending",
        "Open requests",
        "requests that are open",
        (100, 1000, 10_000, 100_000),
        over_pending,
    ),
    Scale("chain", "Length of the chain", "proxies", (0, 1, 2, 3, 4, 6, 8), over_chain),
    Scale("time", "Time", "messages so far", (100_000, 1_000_000, 10_000_000), over_time),
]


def measure_all(
    scales: Sequence[Scale], *, rounds: int, factor: float, progress: TextIO = sys.stderr
) -> Mapping[str, Mapping[str, list[tuple[float, float]]]]:
    """scale -> series -> points, each the median of some rounds."""
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for number in range(rounds):
        for scale in scales:
            for x in scale.values:
                print(f"\r\033[K{number + 1}/{rounds} {scale.title}: {x}", end="", file=progress)
                with alarm(PATIENCE):
                    for series, value in scale.run(x, factor).items():
                        values = found.setdefault(scale.name, {}).setdefault(series, {})
                        values.setdefault(x, []).append(value)
    print("\r\033[K", end="", file=progress)
    return {
        name: {
            series: [(float(x), statistics.median(each)) for x, each in values.items()]
            for series, values in by_series.items()
        }
        for name, by_series in found.items()
    }


def _open_many(client: Client, count: int) -> list[str]:
    return [client.open() for _ in range(count)]
