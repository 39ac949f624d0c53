"""The growth test: clients come and go at one `serve` for as long as one likes; nothing grows.

    python tests/chaos/growth.py [--minutes 60] [--attacks] [--at-once 8]

A server with a chain of a plugin and an agent that is a process; ordinary clients over WebSocket
and HTTP connect, open and close sessions, are cut off, abandon connections, kill their agent. With
`--attacks` another principal attacks meanwhile, and a third one, the quiet tenant, has the time of
its prompts measured before and during that. The census (processes, zombies, descriptors, threads,
resident memory) is taken whenever all clients have left. Prints a table; exits with 1 if something
grew, a client failed, or the quiet tenant's 99th percentile is over three times that of the quiet
minute.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path

import attrs
import psutil
import trio

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from chaos.tenants import ATTACKS, GONE, KINDS, Client, Tenant, open_session, prompt_over  # noqa: E402

ECHO_AGENT = Path(__file__).parents[1] / "components" / "echo_agent.py"
KEEP = 1.0
"""Seconds that the server keeps the chain of a client that was cut off."""
CHAIN = """\
version: 1
proxies:
  - use: usage
agent:
  # Leaves a grandchild without a parent at each start: the server must reap it.
  run: [sh, -c, '(sleep 0.05 &) ; exec "$0" "$@"', {python}, -S, {agent}]
"""
PRINCIPALS = ("busy", "quiet", "hostile")
PLUGIN_CHAIN = "version: 1\nproxies:\n  - use: usage\nagent:\n  use: test-agent\n"


@attrs.frozen
class Census:
    """What a server has, at a moment at which it has no clients."""

    processes: int
    zombies: int
    descriptors: int
    threads: int
    memory: int


@attrs.frozen
class Server:
    url: str
    process: psutil.Process
    tokens: dict[str, str]

    def tenant(self, name: str) -> Tenant:
        return Tenant(self.url, self.tokens[name], random.Random(name))

    def census(self) -> Census:
        children = self.process.children(recursive=True)
        states = [state for child in children if (state := _status(child)) is not None]
        zombies = states.count(psutil.STATUS_ZOMBIE)
        return Census(
            processes=len(states) - zombies,
            zombies=zombies,
            descriptors=self.process.num_fds(),
            threads=self.process.num_threads(),
            memory=self.process.memory_info().rss,
        )

    async def at_rest(self, *, patience: float = 30.0) -> Census:
        """The census once no component is left, or after `patience` seconds."""
        with trio.move_on_after(patience):
            while self.census().processes or self.census().zombies:  # noqa: ASYNC110
                await trio.sleep(0.2)
        await trio.sleep(2 * KEEP + 1)
        return self.census()


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
        command = [
            *(sys.executable, "-m", "conductor", "--log", "error", "serve", str(path)),
            *("--listen", "127.0.0.1:0", "--token-file", str(tokens), "--keep", str(KEEP)),
        ]
        log = Path(directory) / "log"
        with log.open("w") as stderr:
            popen = subprocess.Popen(command, stderr=stderr)
        try:
            while not (line := log.read_text()).endswith("\n"):
                assert popen.poll() is None, line
                time.sleep(0.05)
            url = line.split()[-1]
            yield Server(url, psutil.Process(popen.pid), secrets)
        finally:
            popen.terminate()
            try:
                popen.wait(60)
            except subprocess.TimeoutExpired:
                popen.kill()
            popen.wait()


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
        except* (*GONE, trio.TooSlowError) as group:
            error = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.failed[f"{name}: {type(error).__name__}: {error}"[:120]] += 1
        finally:
            slots.release()


async def prompt_until_told(url: str, token: str) -> None:
    """The quiet tenant, in a process of its own: prints the seconds that each prompt took."""
    async with Tenant(url, token, random.Random()).websocket() as socket:
        session = await open_session(socket)
        for number in count(100):
            began = time.monotonic()
            await prompt_over(socket, session, number, "echo hello")
            print(time.monotonic() - began, flush=True)
            await trio.sleep(0.05)


@contextmanager
def quiet_tenant(server: Server, times: list[float]) -> Iterator[None]:
    """Prompts of the quiet tenant for as long as the block lasts; their times go to `times`."""
    command = [sys.executable, __file__, "--quiet", server.url, server.tokens["quiet"]]
    with tempfile.TemporaryFile("w+") as printed:
        tenant = subprocess.Popen(command, stdout=printed)
        try:
            yield
        finally:
            tenant.terminate()
            tenant.wait()
            printed.seek(0)
            times += [float(line) for line in printed if line.endswith("\n")]


def p99(times: list[float]) -> float:
    """In milliseconds."""
    return statistics.quantiles(times, n=100)[98] * 1e3


def growth(before: Census, after: Census, clients: int) -> list[str]:
    """What grew between two censuses, with `clients` clients between them."""
    found = [
        f"{name}: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("processes", "zombies", "threads")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.descriptors > before.descriptors + 2:  # of pools that are filled when needed
        found.append(f"descriptors: {before.descriptors} before, {after.descriptors} after")
    each = (after.memory - before.memory) / clients
    if each > MEMORY_EACH and after.memory - before.memory > MEMORY_NOISE:
        found.append(f"memory: {each:,.0f} bytes for each client")
    return found


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


async def under_attack(server: Server, minutes: float, at_once: int) -> bool:
    """Ordinary and hostile clients, in rounds of five minutes; in the first of them the quiet
    tenant is alone. True if nothing grew, no ordinary client failed, and the quiet tenant's 99th
    percentile stayed below three times that of its time alone."""
    busy, hostile = Crowd(server.tenant("busy"), KINDS), Crowd(server.tenant("hostile"), ATTACKS)
    await busy.run(20, 2)
    await hostile.run(5 * len(ATTACKS), at_once)
    alone: list[float] = []
    attacked: list[float] = []
    first, clients = await server.at_rest(), 0
    show("at first", first)
    latest, end = first, trio.current_time() + minutes * 60
    while (left := end - trio.current_time()) > 0:
        with quiet_tenant(server, alone):
            await trio.sleep(min(left / 5, 60))
        with quiet_tenant(server, attacked), trio.move_on_after(min(left * 4 / 5, 240)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(busy.run, 10**9, 2)
                nursery.start_soon(hostile.run, 10**9, at_once)
        latest = await server.at_rest()
        clients = sum(busy.served.values()) + sum(hostile.served.values())
        show(f"{clients:,} clients", latest)
        print(f"  99th percentile of the quiet tenant: {p99(alone):.1f} ms alone, "
              f"{p99(attacked):.1f} ms under attack", flush=True)  # fmt: skip
    grown = growth(first, latest, clients)
    print("ordinary clients that failed:", dict(busy.failed) or "none")
    print("hostile clients that were cut or refused:", dict(hostile.failed) or "none")
    print("grown:", grown or "nothing")
    return not grown and not busy.failed and p99(attacked) < 3 * p99(alone)


def show(label: str, census: Census) -> None:
    memory = census.memory / 2**20
    print(f"{label:>18}: {census.processes} processes, {census.zombies} zombies, "
          f"{census.descriptors} descriptors, {census.threads} threads, {memory:.1f} MiB",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--attacks", action="store_true")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--plugin", action="store_true", help="the agent is a plugin")
    parser.add_argument("--quiet", nargs=2, metavar=("URL", "TOKEN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quiet:
        trio.run(prompt_until_told, *options.quiet)
    print(f"{date.today()}  {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}")  # fmt: skip
    with open_server(PLUGIN_CHAIN if options.plugin else CHAIN) as server:
        if options.attacks:
            fine = trio.run(under_attack, server, options.minutes, options.at_once)
        else:
            clients = int(options.minutes * 60)
            found = trio.run(
                partial(cohorts, server, warm=60, clients=clients, at_once=options.at_once)
            )
            print("\n".join(found) or f"{clients} clients: nothing grew")
            fine = not found
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
