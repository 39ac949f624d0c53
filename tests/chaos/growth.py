"""The growth test: clients come and go at one `serve` for as long as one likes; nothing grows.

    python tests/chaos/growth.py [--minutes 60] [--attacks] [--at-once 8] [--agents program|plugin]

A server with a chain of plugins and an agent, which is a program, and a second one whose agent is a
plugin. Ordinary clients over WebSocket and HTTP connect, open and close sessions, are cut off,
abandon connections, kill their agent. With `--attacks`, windows of three kinds alternate in each
round: a quiet tenant, which sends a prompt every 50 ms, is *alone*; with *ordinary* clients, two at
a time, of another principal; *attacked*: with these, and hostile clients of a third principal,
eight at a time, one attack after the other without a pause, as fast as one process can. The attacks
are the 23 findings of November 2026, except those that no client of `serve` can repeat
(`attacks.NOT_FROM_A_CLIENT`: client certificates, what a killed proxy loses, `check`); those by an
agent (`agent_attacks`) only where agents are programs: they flood and break the MCP bridge, over
stdio and HTTP, ask for what no rule allows, leave processes behind, kill themselves. Each of the
three principals is a process of its own. Attackers have a computer of their own; here, they compete
with the server for the CPUs. The hostile process therefore has the lowest priority (`--nice 19`);
`--nice 0` lets it compete as an equal. How many connections, writes and bytes per second the
attackers sent is counted, and how long the server waited for a CPU.

The census (processes, zombies, descriptors, threads, trio tasks, resident memory) is taken after
each round. Prints a table; for each ordinary client that failed its kind, connection id, and the
server's log lines about it. Exits with 1 if something grew, an ordinary client failed, an attack
succeeded, a token is in the log, or the hostile clients raised the quiet tenant's 99th percentile
to more than three times what it is with the ordinary ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from chaos import agent_attacks  # noqa: E402, F401  (adds to the attacks)
from chaos.attacks import attacks_on, open_victim  # noqa: E402
from chaos.measured_server import CHAINS, Census, Server, open_server  # noqa: E402
from chaos.tenants import (  # noqa: E402
    GONE,
    KINDS,
    Client,
    Refused,
    Tenant,
    ask,
    initialize,
    new_session,
    prompt_over,
)


@attrs.define
class Crowd:
    """Clients of one principal, so many at once, each kind in turn."""

    tenant: Tenant
    kinds: Sequence[Client]
    served: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)
    breaches: Counter[str] = attrs.field(factory=Counter)
    """What attacks were given, and should not have been."""

    async def run(self, count: int, at_once: int) -> None:
        """Let `count` clients come and go."""
        slots = trio.Semaphore(at_once)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                await slots.acquire()
                nursery.start_soon(self._one, self.kinds[number % len(self.kinds)], slots)

    async def _one(self, client: Client, slots: trio.Semaphore) -> None:
        name = client.__name__
        try:
            with trio.fail_after(120):
                await client(self.tenant)
            self.served[name] += 1
        except* AssertionError as group:
            self.breaches[f"{name}: {_first(group)}"[:300]] += 1
        except* (*GONE, Refused, trio.TooSlowError) as group:
            error = _first(group)
            at = time.strftime("%H:%M:%S")
            text = f"{name}, {at}: {type(error).__name__}: {error}"[:700]
            self.failed[text] += 1
            if not self.tenant.victim:  # hostile clients are to be refused
                print(text, file=sys.stderr, flush=True)
        finally:
            slots.release()


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def prompt_until_sigterm(url: str, token: str) -> None:
    """The quiet tenant, in a process of its own: prints when each prompt was sent, and the seconds
    that it took."""
    async with Tenant(url, token, random.Random()).websocket() as socket:
        await ask(socket, initialize())
        for number in count(100):
            if number % 100 == 0:  # before its budget is spent
                session = await new_session(socket, number)
            began = time.monotonic()
            await prompt_over(socket, session, number, "echo hello")
            print(began, time.monotonic() - began, flush=True)
            await trio.sleep(0.05)


async def load_until_sigterm(agent: str, tenant: Tenant, at_once: int, nice: int) -> None:
    """Clients of one principal, in a process of their own, until SIGTERM; then a report as JSON.
    With a victim they are hostile, else ordinary."""
    sent = _count_sent()
    crowd = Crowd(tenant, attacks_on(agent) if tenant.victim else KINDS)
    tenant.random.shuffle(crowd.kinds)
    os.nice(nice)
    with trio.open_signal_receiver(signal.SIGTERM) as received:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crowd.run, 10**9, at_once)
            await anext(received)
            nursery.cancel_scope.cancel()
    told = {"served": crowd.served, "failed": crowd.failed, "breaches": crowd.breaches}
    print(json.dumps({**told, "sent": sent}), flush=True)


def _count_sent() -> Counter[str]:
    """Connections, writes and bytes of this process from now on."""
    sent: Counter[str] = Counter()
    opened, written = trio.SocketStream.__init__, trio.SocketStream.send_all

    def __init__(self: trio.SocketStream, *args: Any) -> None:
        sent["connections"] += 1
        opened(self, *args)

    async def send_all(self: trio.SocketStream, data: bytes) -> None:
        sent["writes"] += 1
        sent["bytes"] += len(data)
        await written(self, data)

    trio.SocketStream.__init__ = __init__  # type: ignore[method-assign, assignment]
    trio.SocketStream.send_all = send_all  # type: ignore[method-assign, assignment]
    return sent


def _program(*arguments: str, stdout: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=stdout, text=True)


@contextmanager
def quiet_tenant(server: Server, prompts: list[tuple[float, float]]) -> Iterator[None]:
    """Prompts of the quiet tenant for as long as the block lasts; when they were sent, and the
    seconds that they took, go to `prompts`."""
    with tempfile.TemporaryFile("w+") as printed:
        tenant = _program("--quiet", server.url, server.tokens["quiet"], stdout=printed)
        try:
            yield
        finally:
            tenant.terminate()
            tenant.wait()
            printed.seek(0)
            lines = [line.split() for line in printed if line.endswith("\n")]
            prompts += [(float(sent), float(took)) for sent, took in lines]


@contextmanager
def load(agent: str, tenant: Tenant, at_once: int, report: Load, nice: int = 0) -> Iterator[None]:
    """Clients of a principal for as long as the block lasts, in a process of their own."""
    began = time.monotonic()
    given = (agent, tenant.url, tenant.token, tenant.victim, tenant.greedy, tenant.place)
    arguments = ("--load", *given, str(at_once), str(nice))
    with _program(*arguments, stdout=subprocess.PIPE) as clients:
        try:
            yield
        finally:
            clients.terminate()
            told = json.loads(clients.communicate()[0])
            report.seconds += time.monotonic() - began
            report.served.update(told["served"])
            report.failed.update(told["failed"])
            report.breaches.update(told["breaches"])
            report.sent.update(told["sent"])


def p50(times: list[float]) -> float:
    """In milliseconds."""
    return statistics.median(times) * 1e3


def p99(times: list[float]) -> float:
    """In milliseconds."""
    return statistics.quantiles(times, n=100)[98] * 1e3


def growth(before: Census, after: Census, clients: int) -> list[str]:
    """What grew between two censuses, with `clients` clients between them."""
    found = [
        f"{name}: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("threads", "tasks")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.processes or after.zombies:
        found.append(f"{after.processes} processes and {after.zombies} zombies are left")
    if after.descriptors > before.descriptors + 2:  # of pools that are filled when needed
        found.append(f"descriptors: {before.descriptors} before, {after.descriptors} after")
    found += memory_growth(before.memory, after.memory, clients)
    return found


def memory_growth(before: float, after: float, clients: int) -> list[str]:
    each = (after - before) / clients
    if each > MEMORY_EACH and after - before > MEMORY_NOISE:
        return [f"memory: {each:,.0f} bytes for each client"]
    return []


MEMORY_EACH = 512
"""Bytes for each client below which growth is the allocator's."""
MEMORY_NOISE = 8 * 2**20
"""Bytes by which the resident memory of an idle server varies."""


async def cohorts(server: Server, *, warm: int, clients: int, at_once: int) -> list[str]:
    """Ordinary clients in two cohorts; what grew, and which clients failed."""
    crowd = Crowd(server.tenant("busy"), KINDS)
    await crowd.run(warm, at_once)
    before = await server.at_rest()
    await crowd.run(clients, at_once)
    after = await server.at_rest()
    return [*growth(before, after, clients), *explained(crowd.failed, server), *crowd.breaches]


def explained(failed: Iterable[str], server: Server) -> list[str]:
    """Failures of clients, each with what the server logged about the client."""
    lines = []
    for text in failed:
        connection = re.search(r"connection(?:-id': '| )([\w-]{32})", text)
        logged = server.log_of(connection[1]) if connection is not None else []
        lines.append("\n    ".join([text, *logged]))
    return lines


@attrs.define
class Load:
    """What the clients of one principal did."""

    seconds: float = 0.0
    served: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)
    breaches: Counter[str] = attrs.field(factory=Counter)
    sent: Counter[str] = attrs.field(factory=Counter)

    def rates(self) -> str:
        return ", ".join(f"{n / self.seconds:,.0f} {what}/s" for what, n in self.sent.items())


WINDOWS = ("alone", "ordinary", "attacked")
"""The quiet tenant alone; with ordinary clients of another; with these and hostile ones."""
NICE = 19
"""Priority of the hostile process (`nice`): the lowest."""
SETTLE = 3.0
"""Seconds before and after a load is started that belong to no window."""


@attrs.define
class Trial:
    """One server, and what was measured at it, by kind of window."""

    name: str
    server: Server
    victim: str = attrs.field(default="", init=False)
    """A session of the quiet tenant."""
    busy: Load = attrs.field(factory=Load)
    hostile: Load = attrs.field(factory=Load)
    times: dict[str, list[float]] = attrs.field(factory=lambda: {kind: [] for kind in WINDOWS})
    used: Counter[str] = attrs.field(factory=Counter)
    """Seconds of CPU of the server's process, by kind of window."""
    delayed: Counter[str] = attrs.field(factory=Counter)
    """Seconds for which it was ready to run, and no CPU was free."""
    measured: Counter[str] = attrs.field(factory=Counter)
    """Seconds of such windows."""
    first: Census = attrs.field(init=False)
    latest: Census = attrs.field(init=False)
    memory: list[int] = attrs.field(factory=list)
    """Resident memory after each round, in bytes."""

    @property
    def clients(self) -> int:
        return sum(self.busy.served.values()) + sum(self.hostile.served.values())

    async def round(self, seconds: float, at_once: int, nice: int) -> None:
        """One window of each kind, of so many seconds; their order changes."""
        kinds, windows = list(WINDOWS), []
        prompts: list[tuple[float, float]] = []
        random.shuffle(kinds)
        with quiet_tenant(self.server, prompts):
            for kind in kinds:
                await trio.sleep(SETTLE)
                with ExitStack() as loads:
                    if kind != "alone":
                        busy = self.server.tenant("busy")
                        loads.enter_context(load(self.name, busy, 2, self.busy))
                    if kind == "attacked":
                        hostile = self.server.tenant("hostile", self.victim)
                        loads.enter_context(load(self.name, hostile, at_once, self.hostile, nice))
                    await trio.sleep(SETTLE)
                    windows.append((kind, time.monotonic()))
                    before = self.server.schedule()
                    await trio.sleep(seconds)
                    after = self.server.schedule()
                self.measured[kind] += seconds
                self.used[kind] += after[0] - before[0]
                self.delayed[kind] += after[1] - before[1]
        for kind, began in windows:
            inside = [took for sent, took in prompts if began <= sent < began + seconds]
            self.times[kind] += inside
        self.latest = await self.server.at_rest()
        self.memory.append(self.latest.memory)

    def show(self) -> None:
        show(f"{self.name}, {self.clients:,} clients", self.latest)
        told = ", ".join(f"{p50(times):.1f} / {p99(times):.1f} ms {kind}"
                         for kind, times in self.times.items())  # fmt: skip
        print(f"  the quiet tenant's prompts, median / 99th percentile: {told}", flush=True)

    def conclude(self) -> bool:
        """Print what was found; whether all is well."""
        # Memory of the last quarter of the rounds against the second quarter: before, the heap has
        # not reached its size; and one census is up to 20 MiB off.
        quarter = max(1, len(self.memory) // 4)
        early, late = self.memory[quarter : 2 * quarter], self.memory[-quarter:]
        latest = attrs.evolve(self.latest, memory=self.first.memory)
        grown = growth(self.first, latest, self.clients) + memory_growth(
            statistics.median(early or late), statistics.median(late), self.clients // 2
        )
        times = self.times
        print(f"\n{self.name}:")
        for kind, seconds in self.measured.items():
            used, delayed = self.used[kind] / seconds, self.delayed[kind] / seconds
            print(f"  {kind}: the server ran {used:.0%} of the time, and waited {delayed:.0%} "
                  "of it for a CPU")  # fmt: skip
        print("ordinary clients:", self.busy.rates())
        print("hostile clients:", self.hostile.rates())
        failed = explained(self.busy.failed, self.server)
        print("ordinary clients that failed:", "\n  ".join(failed) or "none")
        print("attacks:", dict(sorted(self.hostile.served.items())))
        print("attacks that were cut or refused:", _by_kind(self.hostile.failed) or "none")
        breaches = [*self.hostile.breaches, *self.server.logged_tokens()]
        print("attacks that succeeded:", breaches or "none")
        print("grown:", grown or "nothing")
        ratio = p99(times["attacked"]) / p99(times["ordinary"])
        alone = p99(times["attacked"]) / p99(times["alone"])
        print(f"99th percentile under attack: {ratio:.1f} times that with ordinary clients, "
              f"{alone:.1f} times that alone")  # fmt: skip
        return not grown and not failed and not breaches and ratio < 3


def _by_kind(failed: Counter[str]) -> dict[str, int]:
    """Numbers of refused attacks, by attack and error, without times and connections."""
    found: Counter[str] = Counter()
    for text, number in failed.items():
        name, _, error = text.partition(", ")
        found[f"{name}: {re.split('[,;]', error[10:])[0][:60]}"] += number
    return dict(found)


async def under_attack(
    servers: dict[str, Server],
    minutes: float,
    at_once: int,
    *,
    nice: int = NICE,
    window: float = 20.0,
) -> bool:
    """Ordinary and hostile clients at each server in turn. True if nothing grew, no ordinary client
    failed, and the hostile ones raised the quiet tenant's 99th percentile less than three times."""
    trials = [Trial(name, server) for name, server in servers.items()]
    for trial in trials:
        trial.victim = await open_victim(trial.server.tenant("quiet"))
        await Crowd(trial.server.tenant("busy"), KINDS).run(20, 2)
        hostile, attacks = trial.server.tenant("hostile", trial.victim), attacks_on(trial.name)
        first = Crowd(hostile, attacks)
        await first.run(3 * len(attacks), at_once)
        trial.hostile.breaches.update(first.breaches)
        trial.first = await trial.server.at_rest()
        show(f"{trial.name} at first", trial.first)
    end = trio.current_time() + minutes * 60
    while trio.current_time() < end:
        for trial in trials:
            await trial.round(window, at_once, nice)
            trial.show()
    verdicts = [trial.conclude() for trial in trials]
    return all(verdicts)


def show(label: str, census: Census) -> None:
    memory = census.memory / 2**20
    print(f"{label:>18}: {census.processes} processes, {census.zombies} zombies, "
          f"{census.descriptors} descriptors, {census.threads} threads, {census.tasks} tasks, "
          f"{memory:.1f} MiB", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--attacks", action="store_true")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--agents", choices=[*CHAINS, "both"], default="both")
    parser.add_argument("--nice", type=int, default=NICE, help="of the hostile process")
    parser.add_argument("--quiet", nargs=2, metavar=("URL", "TOKEN"), help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs=8, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quiet:
        trio.run(prompt_until_sigterm, *options.quiet)
    if options.load:
        agent, url, token, victim, greedy, place, at_once, nice = options.load
        tenant = Tenant(url, token, random.Random(time.monotonic()), victim, greedy, place)
        trio.run(load_until_sigterm, agent, tenant, int(at_once), int(nice))
        return
    print(f"{date.today()}  {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}")  # fmt: skip
    chains = CHAINS if options.agents == "both" else {options.agents: CHAINS[options.agents]}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(open_server(c)) for name, c in chains.items()}
        if options.attacks:
            fine = trio.run(
                partial(under_attack, servers, options.minutes, options.at_once, nice=options.nice)
            )
        else:
            fine = True
            for name, server in servers.items():
                clients = int(options.minutes * 60)
                found = trio.run(
                    partial(cohorts, server, warm=60, clients=clients, at_once=options.at_once)
                )
                print(name, "\n".join(found) or f"{clients} clients: nothing grew", sep=": ")
                fine = fine and not found
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
