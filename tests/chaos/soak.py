"""Soak test: many messages through one chain, and many chains in one process.

    python tests/chaos/soak.py [--messages 1000000] [--teardowns 1000]

Messages go through the conductor as a process, one proxy and one agent; its memory is looked at
after every tenth of them. Teardowns are chains in this process, each with a proxy and an agent that
are processes; every third ends in order, every third is stopped in the middle of a prompt, and in
every third the agent dies first. After the first tenth (caches are warm) nothing may grow.
Prints a table; exits with 1 if anything leaks.
"""

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path

import psutil
import trio
import trio.testing

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.peers.process import Editor, agent, proxy, words  # noqa: E402

from conductor import log  # noqa: E402
from conductor.chain.build import build_components  # noqa: E402
from conductor.chain.components import ChainSpec  # noqa: E402
from conductor.chainfile.model import ComponentSpec  # noqa: E402
from conductor.client.acp_client import Client  # noqa: E402
from conductor.client.embedding import attach  # noqa: E402
from conductor.errors import ConductorError  # noqa: E402

BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--teardowns", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{date.today()}  {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}")  # fmt: skip
    fine = soak_messages(options.messages) & soak_teardowns(options.teardowns)
    sys.exit(0 if fine else 1)


def soak_messages(count: int) -> bool:
    """Updates through a process proxy; returns whether all came and memory stayed level."""
    editor = Editor(["agent", *words(proxy("p"), agent())])
    editor.open()
    me, sizes, came, begin = psutil.Process(editor.pid), [], 0, time.monotonic()
    while came < count:
        prompt = editor.prompt(f"stream {BATCH} 100")
        answer = b'"id":%d,' % prompt
        rest = b""
        while True:
            data = rest + editor.read_bytes()
            head, _, rest = data.rpartition(b"\n")
            came += head.count(b'"session/update"')
            if answer in head[-500:]:
                break
        if came % (count // 10) < BATCH:
            sizes.append(me.memory_info().rss)
    spent = time.monotonic() - begin
    fds, threads = me.num_fds(), me.num_threads()
    assert editor.leave() == 0
    editor.close()
    slope = (sizes[-1] - sizes[1]) / max(1, came * 8 / 10)
    print(f"messages     {came:>9}  in {spent:.0f} s, {came / spent:,.0f} a second")
    early, late = sizes[0] / 2**20, sizes[-1] / 2**20
    print(f"  RSS        {early:.1f} MiB at a tenth, {late:.1f} MiB at the end")
    print(f"  descriptors {fds}, threads {threads}")
    return came == count // BATCH * BATCH and slope * 1e6 < 2 * 2**20


def soak_teardowns(count: int) -> bool:
    """Chains that come and go in this process; returns whether everything of them went."""
    log.configure("off")
    me, begin = psutil.Process(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        early = census(me, directory)
        sizes = []
        for number in range(count):
            trio.run(one_chain, number)
            if number == count // 10:
                early = census(me, directory)
            if number >= count // 10:
                sizes.append(me.memory_info().rss)
        late = census(me, directory)
        tempfile.tempdir = None
    slope = regression(sizes)
    print(f"teardowns    {count:>9}  in {time.monotonic() - begin:.0f} s")
    for name, before in early.items():
        print(f"  {name:11} {before} after a tenth, {late[name]} at the end")
    print(f"  RSS slope   {slope / 1024:.2f} KiB per teardown, {sizes[-1] / 2**20:.1f} MiB at last")
    return early == late and slope < 4096


def census(me: psutil.Process, directory: str) -> dict[str, int]:
    return {
        "processes": len(me.children(recursive=True)),
        "descriptors": me.num_fds(),
        "threads": threading.active_count(),
        "temp files": len(os.listdir(directory)),
    }


def regression(values: list[int]) -> float:
    """The least-squares slope."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    above = sum((index - middle) * (value - mean) for index, value in enumerate(values))
    return above / (sum((index - middle) ** 2 for index in range(len(values))) or 1.0)


async def one_chain(number: int) -> None:
    specs = [
        ComponentSpec(name="p", run=tuple(proxy("p"))),
        ComponentSpec(name="agent", run=tuple(agent())),
    ]
    async with attach(
        Client, ChainSpec(lambda: build_components(specs, mode="agent"), stop_timeout=1.0)
    ) as attached:
        client = attached.client
        await client.initialize()
        session = await client.new_session("/")
        match number % 3:
            case 0:
                await client.prompt(session, "stream 10 100")
            case 1:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(prompt_in_vain, client, session, "wait")
                    await trio.testing.wait_all_tasks_blocked()
                    attached.chain.stop()
            case 2:
                await prompt_in_vain(client, session, "die 1")


async def prompt_in_vain(client: Client, session: str, text: str) -> None:
    try:
        await client.prompt(session, text)
    except ConductorError:
        return
    raise AssertionError("it was answered")


if __name__ == "__main__":
    main()
