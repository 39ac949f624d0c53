"""A plugin fails in every way that Python allows, at every point of its life; the chain goes on.

It runs in the conductor's process, without isolation: its exceptions, `sys.exit()` included, end no
more than the affected handler or plugin. All combinations run with
`--long`; by default each fault meets one point, and each point one fault.
"""

from itertools import product

import pytest
from chaos.test_chaos import BUDGET, check_that_it_works_again, record
from support.peers.process import agent, peak

FAULTS = ("raise", "group", "exit", "interrupt", "task", "lifespan", "hang", "block", "flood")
POINTS = ("start", "initialize", "session/new", "session/prompt", "session/update",
          "session/request_permission", "stop")  # fmt: skip
HOW = ("inside", "isolated")
SESSION = {"cwd": "/", "mcpServers": []}
LASTING = ("hang",)
"""A held lane stays held; a hanging `lifespan()` ends by `start_timeout` or `stop_timeout`."""

PLUGIN = '''
import os
import sys
import time
from contextlib import asynccontextmanager

import attrs
import trio

from conductor.proxy import Proxy, on


@attrs.define
class Bad(Proxy):
    """Fails once in its way, at its point."""

    fault: str
    at: str
    once: str
    broken: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def lifespan(self):
        await self.strike("start")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            yield
            nursery.cancel_scope.cancel()
        await self.strike("stop")

    async def watch(self):
        await self.broken.wait()
        raise RuntimeError("the lifespan is over")

    async def strike(self, method):
        if method != self.at:
            return
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        match self.fault:
            case "raise":
                raise RuntimeError("planned")
            case "group":
                raise BaseExceptionGroup("planned", [KeyboardInterrupt(), RuntimeError("one more")])
            case "exit":
                sys.exit("planned")
            case "interrupt":
                raise KeyboardInterrupt
            case "task":
                self.start_soon(self.end)
            case "lifespan":
                self.broken.set()
            case "hang":
                await trio.sleep_forever()
            case "block":
                time.sleep(0.5)
            case "flood" if method not in ("start", "stop"):
                for _ in range(100_000):
                    await self.client.notify("_flood", {"x": "-" * 950})

    async def end(self):
        sys.exit("planned")

    @on("initialize")
    async def initialize(self, params: dict, forward):
        result = await forward()
        await self.strike("initialize")
        return result

    @on("session/new")
    async def new(self, params: dict, forward):
        await self.strike("session/new")
        return await forward()

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        await self.strike("session/prompt")
        return await forward()

    @on("session/update")
    async def update(self, params: dict, forward):
        await self.strike("session/update")
        await forward()

    @on("session/request_permission")
    async def permission(self, params: dict, forward):
        await self.strike("session/request_permission")
        return await forward()
'''


def cases():
    yield from product(HOW, FAULTS, POINTS)


def is_short(how, fault, point):
    number = FAULTS.index(fault) + POINTS.index(point)
    return number % 9 == 4 * HOW.index(how)


@pytest.mark.parametrize(
    ("how", "fault", "point"),
    [pytest.param(*case, marks=() if is_short(*case) else pytest.mark.long) for case in cases()],
)
def test_a_plugin_fails(run_chain, tmp_path, how, fault, point):
    (tmp_path / "bad.py").write_text(PLUGIN)
    options = {"fault": fault, "at": point, "once": str(tmp_path / "once")}
    start = "2s" if fault in LASTING and point in ("start", "initialize") else "30s"
    spec = {"use": f"{tmp_path}/bad.py:Bad", "name": "bad", "with": options, "start_timeout": start}
    spec |= {"isolate": True} if how == "isolated" else {}
    last = {"run": agent("--back", "resume"), "name": "agent", "stop_timeout": "1s"}
    others = [agent("--proxy", "--name", name) for name in "ab"]
    editor = run_chain(last, others[0], spec | {"stop_timeout": "1s"}, others[1], log="error")
    asked, answered = record(editor)

    answer = editor.answer(editor.request("initialize", protocolVersion=1, clientCapabilities={}))
    initialized = "result" in answer
    if initialized:
        base = peak(editor.pid)
        new = editor.request("session/new", **SESSION)
        if fault not in LASTING:
            while "result" not in editor.answer(new):
                assert len(asked) < 6
                new = editor.request("session/new", **SESSION)
            editor.prompt("perm" if point == "session/request_permission" else "wait")
            check_that_it_works_again(editor)
        elif point.startswith("session/"):
            editor.prompt("perm" if point == "session/request_permission" else "wait")
            editor.request("_unknown")
        assert peak(editor.pid) - base < BUDGET
    else:
        assert point in ("start", "initialize")
    editor.close_stdin()
    editor.rest()

    assert sorted(answered) == sorted(asked)  # each once, and nothing else
    assert editor.wait() == (0 if initialized else 3)
