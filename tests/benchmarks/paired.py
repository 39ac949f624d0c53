"""This conductor and that of a fixed commit in turn, with the same agent, proxies and client:
`python -m tests.benchmarks.paired`. Prints a table in Markdown. Takes about five minutes, and one
more for the first time, when it installs both (`baseline.py`).

Two equal conductors differ by up to a quarter for as long as they run, so there are several starts
of both. The minimum is what other load disturbs least.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import psutil

from .baseline import REVISION, Conductor, baseline, this
from .client import Client, alarm, cpu_ns
from .compare import pin_to_one_cpu
from .measures import LOADS, Load, open_sessions
from .recording import FLIGHT, FULL, SLICE, in_turn, recording_costs, wait_idle
from .report import table
from .subjects import AGENT, HERE, PROXY

Numbers = tuple[float, float]
Sides = tuple[list[float], list[float]]
MESSAGES = ("round-trip", "small", "medium", "large", "upload", "sessions")
SLICES = 4
PROMPTS = 10
PLUGIN = '''import attrs
import conductor.proxy
from conductor.proxy import Proxy, on_prompt

text = getattr(conductor.proxy, "text", None) or conductor.proxy.peers.text


@attrs.define
class Brief(Proxy):
    """Ask for short answers."""

    @on_prompt
    async def ask(self, session, prompt, forward):
        prompt.blocks.insert(0, text("Answer briefly."))
        return await forward()
'''


@attrs.frozen
class Row:
    """Minimum and median of both conductors, and of the second in multiples of the first."""

    title: str
    older: Numbers
    newer: Numbers
    ratios: Numbers

    def cells(self) -> list[str]:
        values = [f"{n:.3g}" if n < 100 else f"{n:,.0f}" for n in (*self.older, *self.newer)]
        return [self.title, *values, *(f"{each:.2f}" for each in self.ratios)]


def messages(both: Sequence[Conductor], starts: int) -> Iterator[Row]:
    """CPU per message."""
    for proxies in (0, 1, 3):
        costs: dict[str, Sides] = {each: ([], []) for each in MESSAGES}
        for _ in range(starts):
            chain = list(map(shlex.join, [*[PROXY] * proxies, AGENT]))
            with ExitStack() as stack:
                drives = []
                for conductor in both:
                    client = stack.enter_context(Client(conductor.command("agent", *chain)))
                    drives.append(partial(_cpu, client, open_sessions(client)))
                for name in MESSAGES:
                    with alarm():
                        found = in_turn([partial(each, LOADS[name]) for each in drives], SLICES)
                    for values, more in zip(costs[name], found, strict=True):
                        values += more
        plural = "proxy" if proxies == 1 else "proxies"
        for name, sides in costs.items():
            yield _row(f"{LOADS[name].title}, {proxies} {plural}: CPU µs", *sides)


def recording(both: Sequence[Conductor], starts: int) -> Iterator[Row]:
    """CPU with recording, in multiples of that without it in the same process."""
    for kind in (FLIGHT, FULL):
        for name in ("question", "small", "large", "sessions"):
            found: tuple[list[Sides], list[Sides]] = ([], [])
            for _ in range(starts):
                for conductor, costs in zip(both, found, strict=True):
                    switched = conductor.program("switched.py")
                    costs.append(recording_costs(switched, kind, LOADS[name], slices=SLICES))
            old, new = map(_multiple, found)
            ratios = new[0] / old[0], new[1] / old[1]
            yield Row(f"{LOADS[name].title}, {kind}: × without", old, new, ratios)


def start(both: Sequence[Conductor], starts: int) -> Iterator[Row]:
    """From the start of `run FILE` to the response of an agent that answers at once."""
    context = {"use": "context", "with": {"text": "Answer briefly."}}
    for title, proxies in (("", []), (" and `context`", [context])):
        with tempfile.TemporaryDirectory() as directory, alarm():
            command = "run", _chain_file(directory, proxies)
            times = in_turn([partial(_start, each.command(*command)) for each in both], 4 * starts)
        for at, unit in enumerate(("ms", "CPU ms")):
            old, new = ([each[at] for each in side] for side in times)
            yield _row(f"start of `run` with an instant agent{title}: {unit}", old, new)


def calls(both: Sequence[Conductor], _: int) -> Iterator[Row]:
    """What one prompt and its answer call, through a plugin and a program."""
    found = zip(*map(_calls, both), strict=True)
    for what, (old, new) in zip(("calls", "modules"), found, strict=True):
        title = f"{what} of the conductor for a prompt and its answer, 1 plugin, 1 proxy"
        yield _row(title, old, new)


GROUPS = {each.__name__: each for each in (messages, recording, start, calls)}


def _row(title: str, old: Sequence[float], new: Sequence[float]) -> Row:
    """A row of numbers that were measured in turn."""
    neighbours = [second / first for first, second in zip(old, new, strict=True)]
    ratios = min(new) / min(old), statistics.median(neighbours)
    older, newer = ((min(each), statistics.median(each)) for each in (old, new))
    return Row(title, older, newer, ratios)


def _multiple(starts: Sequence[Sides]) -> Numbers:
    """Of costs with and without recording: ratio of the minima, median of neighbouring slices."""
    on, off = ([value for start in starts for value in start[side]] for side in (0, 1))
    return _row("", off, on).ratios


def _cpu(client: Client, sessions: Sequence[str], load: Load) -> float:
    return load.drive(client, sessions, max(1, int(load.count * SLICE)))["cpu"]


def _start(command: Sequence[str]) -> Numbers:
    """Milliseconds until `initialize` is answered, and of the conductor's CPU time until then."""
    with Client(command) as client:
        return client.initialize() * 1e3, cpu_ns(client.pid) / 1e6


def _chain_file(directory: str, proxies: Sequence[Mapping[str, object]]) -> str:
    file = Path(directory, "chain.yaml")
    file.write_text(json.dumps({"version": 1, "proxies": proxies, "agent": {"run": AGENT}}))
    return str(file)


def _calls(conductor: Conductor) -> Sides:
    """Of each prompt: calls, and modules that they are in."""
    calls, modules = [], []
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "brief.py").write_text(PLUGIN)
        file = _chain_file(directory, [{"use": "./brief.py:Brief"}, {"run": PROXY}])
        counts = Path(directory, "counts.json")
        program = [str(conductor.python), "-P", str(HERE / "counted.py"), str(counts)]
        with Client([*program, "run", file]) as client, alarm():
            session = open_sessions(client)[0]
            for _ in range(PROMPTS):
                os.kill(client.pid, signal.SIGUSR2)
                _wait_until(counts.exists)
                client.write(client.prompt(session, "echo"))
                client.lines(1)
                wait_idle(client.pid)
                os.kill(client.pid, signal.SIGUSR2)
                _wait_until(lambda: counts.stat().st_size > 0)
                found: dict[str, int] = json.loads(counts.read_text())
                counts.unlink()
                calls.append(float(sum(found.values())))
                modules.append(float(len(found)))
    return calls[1:], modules[1:]


def _wait_until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.paired", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), metavar="NAME,…")
    parser.add_argument("--starts", type=int, default=4, help="of both conductors for each chain")
    arguments = parser.parse_args()
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        os.environ.pop(name, None)
    began, allowed = time.monotonic(), os.sched_getaffinity(0)
    both = baseline(), this()
    busy = psutil.cpu_percent(interval=1)
    rows = []
    for name in arguments.only.split(","):
        if name == "start":
            os.sched_setaffinity(0, allowed)
        else:
            pin_to_one_cpu()
        for row in GROUPS[name](both, arguments.starts):
            rows.append(row.cells())
            print(*rows[-1], sep="; ", file=sys.stderr)
    older = REVISION[:8]
    heads = ["", f"{older}, minimum", "median", "now, minimum", "median", "× minimum", "× median"]
    print(table(heads, rows))
    minutes = (time.monotonic() - began) / 60
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"\n{arguments.starts} starts, {minutes:.1f} minutes; Python {sys.version.split()[0]}, "
        f"{os.cpu_count()} CPUs, {busy:.0f} % busy before, load {load} after."
    )


if __name__ == "__main__":
    main()
