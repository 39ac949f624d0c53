"""The growth test: clients come and go at one `serve` for as long as one likes; nothing grows.

    python tests/chaos/growth.py [--minutes 60] [--attacks] [--at-once 8] [--agents program|plugin]

A server with a chain of a plugin and an agent, which is a program, and a second one whose agent is
a plugin. Ordinary clients over WebSocket and HTTP connect, open and close sessions, are cut off,
abandon connections, kill their agent. With `--attacks`, windows of three kinds alternate in each
round: a quiet tenant, which sends a prompt every 50 ms, is *alone*; with *ordinary* clients, two at
a time, of another principal; *attacked*: with these, and hostile clients of a third principal,
eight at a time, one attack of `tenants.ATTACKS` after the other without a pause, as fast as one
process can. Each of the three principals is a process of its own. Attackers have a computer of
their own; here, they compete with the server for the CPUs. The hostile process therefore has the
lowest priority (`--nice 19`); `--nice 0` lets it compete as an equal. How many connections, writes
and bytes per second the attackers sent is counted, and how long the server waited for a CPU.

The census (processes, zombies, descriptors, threads, trio tasks, resident memory) is taken after
each round. Prints a table; exits with 1 if something grew, an ordinary client failed, or the
hostile clients raised the quiet tenant's 99th percentile to more than three times what it is with
the ordinary ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import psutil
import trio

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from chaos.tenants import ATTACKS, GONE, KINDS, Client, Tenant, open_session, prompt_over  # noqa: E402

COUNTED = Path(__file__).with_name("counted.py")
ECHO_AGENT = Path(__file__).parents[1] / "support" / "components" / "echo_agent.py"
KEEP = 5.0
"""Seconds that the server keeps the chain of a client that is detached. An HTTP client is detached
until it opens its first stream, which took up to 2 s on two cores with a load of 10."""
CHAIN = """\
version: 1
proxies:
  - use: usage
agent:
  # Leaves grandchildren without a parent at each start: the server must reap one and end the other.
  run: [sh, -c, '(sleep 0.05 &); (setsid sleep 3600 &); exec "$0" "$@"', {python}, -S, {agent}]
"""
PLUGIN_CHAIN = "version: 1\nproxies:\n  - use: usage\nagent:\n  use: test-agent\n"
CHAINS = {"program": CHAIN, "plugin": PLUGIN_CHAIN}
"""By what the agent is."""


@attrs.frozen
class Census:
    """What a server has, at a moment at which it has no clients; its guard is not counted."""

    processes: int
    zombies: int
    descriptors: int
    threads: int
    tasks: int
    memory: int


@attrs.frozen
class Server:
    url: str
    process: psutil.Process
    tasks: int
    """The descriptor that its number of tasks is read from."""
    tokens: dict[str, str]

    def tenant(self, name: str) -> Tenant:
        return Tenant(self.url, self.tokens[name], random.Random(name))

    def schedule(self) -> tuple[float, float]:
        """Seconds of CPU of the server's process so far, and of waiting for a CPU (Linux)."""
        used, delayed, _ = Path(f"/proc/{self.process.pid}/schedstat").read_text().split()
        return int(used) / 1e9, int(delayed) / 1e9

    def census(self) -> Census:
        children = [each for each in self.process.children(recursive=True) if not _is_guard(each)]
        states = [state for child in children if (state := _status(child)) is not None]
        zombies = states.count(psutil.STATUS_ZOMBIE)
        return Census(
            processes=len(states) - zombies,
            zombies=zombies,
            descriptors=self.process.num_fds(),
            threads=self.process.num_threads(),
            tasks=self._count_tasks(),
            memory=self.process.memory_info().rss,
        )

    def _count_tasks(self) -> int:
        self.process.send_signal(signal.SIGUSR2)
        return int(os.read(self.tasks, 16))

    async def at_rest(self, *, patience: float = 30.0) -> Census:
        """The census once no component is left, or after `patience` seconds."""
        with trio.move_on_after(patience):
            while self.census().processes or self.census().zombies:  # noqa: ASYNC110
                await trio.sleep(0.2)
        await trio.sleep(KEEP + 2)
        return self.census()


def _is_guard(process: psutil.Process) -> bool:
    try:
        return any(word.endswith("guard_process.py") for word in process.cmdline())
    except psutil.Error:
        return False


def _status(process: psutil.Process) -> str | None:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return None


@contextmanager
def open_server(chain: str) -> Iterator[Server]:
    """A `serve` in a process of its own, for three principals."""
    with tempfile.TemporaryDirectory() as directory:
        path, tokens = Path(directory) / "chain.yaml", Path(directory) / "tokens"
        agent = {"python": sys.executable, "agent": ECHO_AGENT}
        path.write_text(chain.format(**agent) if "{python}" in chain else chain)
        secrets = {
            name: f"{name}-{'0123456789abcdef' * 2}" for name in ("busy", "quiet", "hostile")
        }
        tokens.write_text("".join(f"{name}:{token}\n" for name, token in secrets.items()))
        tokens.chmod(0o600)
        read, write = os.pipe()
        command = [
            *(sys.executable, str(COUNTED), str(write), "--log", "error", "serve", str(path)),
            *("--listen", "127.0.0.1:0", "--token-file", str(tokens), "--keep", str(KEEP)),
        ]
        log = Path(directory) / "log"
        with log.open("w") as stderr:
            popen = subprocess.Popen(command, stderr=stderr, pass_fds=[write])
        try:
            while not (line := log.read_text()).endswith("\n"):
                assert popen.poll() is None, line
                time.sleep(0.05)
            url = line.split()[-1]
            yield Server(url, psutil.Process(popen.pid), read, secrets)
        finally:
            popen.terminate()
            try:
                popen.wait(60)
            except subprocess.TimeoutExpired:
                popen.kill()
            popen.wait()
            os.close(read)
            os.close(write)


@attrs.define
class Crowd:
    """Clients of one principal, so many at once, each kind in turn."""

    tenant: Tenant
    kinds: Sequence[Client]
    served: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)

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
        except* (*GONE, AssertionError, trio.TooSlowError) as group:
            error = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.failed[f"{name}: {type(error).__name__}: {error}"[:120]] += 1
        finally:
            slots.release()


async def prompt_until_told(url: str, token: str) -> None:
    """The quiet tenant, in a process of its own: prints when each prompt was sent, and the seconds
    that it took."""
    async with Tenant(url, token, random.Random()).websocket() as socket:
        session = await open_session(socket)
        for number in count(100):
            began = time.monotonic()
            await prompt_over(socket, session, number, "echo hello")
            print(began, time.monotonic() - began, flush=True)
            await trio.sleep(0.05)


async def load_until_told(kind: str, url: str, token: str, at_once: int, nice: int) -> None:
    """Clients of one principal, in a process of their own, until SIGTERM; then a report as JSON."""
    sent = _count_sent()
    tenant = Tenant(url, token, random.Random(kind))
    crowd = Crowd(tenant, ATTACKS if kind == "hostile" else KINDS)
    os.nice(nice)
    with trio.open_signal_receiver(signal.SIGTERM) as received:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crowd.run, 10**9, at_once)
            await anext(received)
            nursery.cancel_scope.cancel()
    print(json.dumps({"served": crowd.served, "failed": crowd.failed, "sent": sent}), flush=True)


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
def load(server: Server, kind: str, at_once: int, report: Load, *, nice: int = 0) -> Iterator[None]:
    """Clients of a principal for as long as the block lasts, in a process of their own."""
    began = time.monotonic()
    arguments = ("--load", kind, server.url, server.tokens[kind], str(at_once), str(nice))
    with _program(*arguments, stdout=subprocess.PIPE) as clients:
        try:
            yield
        finally:
            clients.terminate()
            told = json.loads(clients.communicate()[0])
            report.seconds += time.monotonic() - began
            report.served.update(told["served"])
            report.failed.update(told["failed"])
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
    return [*growth(before, after, clients), *crowd.failed]


@attrs.define
class Load:
    """What the clients of one principal did."""

    seconds: float = 0.0
    served: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)
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
                        loads.enter_context(load(self.server, "busy", 2, self.busy))
                    if kind == "attacked":
                        loads.enter_context(
                            load(self.server, "hostile", at_once, self.hostile, nice=nice)
                        )
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
        print("ordinary clients that failed:", dict(self.busy.failed) or "none")
        print("hostile clients that were cut or refused:", dict(self.hostile.failed) or "none")
        print("grown:", grown or "nothing")
        ratio = p99(times["attacked"]) / p99(times["ordinary"])
        alone = p99(times["attacked"]) / p99(times["alone"])
        print(f"99th percentile under attack: {ratio:.1f} times that with ordinary clients, "
              f"{alone:.1f} times that alone")  # fmt: skip
        return not grown and not self.busy.failed and ratio < 3


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
        await Crowd(trial.server.tenant("busy"), KINDS).run(20, 2)
        await Crowd(trial.server.tenant("hostile"), ATTACKS).run(5 * len(ATTACKS), at_once)
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
    parser.add_argument("--load", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quiet:
        trio.run(prompt_until_told, *options.quiet)
    if options.load:
        kind, url, token, at_once, nice = options.load
        trio.run(load_until_told, kind, url, token, int(at_once), int(nice))
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
