"""A tool call through bridge and shim, against the same server spawned directly.

    python tests/benchmarks/bench_mcp.py [--calls N] [--json]

This process is the ACP client, which offers the server, and the agent's MCP client, which calls it:
the path is pipe, shim, Unix socket, conductor, pipe, and back. The direct server is a script that
answers the same requests on its own stdio. Both are called over bare pipes, without an SDK.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from conductor.client.acp_client import Client
from conductor.peer import JsonRpcPeer
from conductor.transport.child_process import ChildProcess, start_child

ENV = {"PATH": "/usr/bin:/bin"}
RESULT = {"content": [{"type": "text", "text": "x" * 100}]}
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1"},
}
SERVER = f"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {INITIALIZED!r} if message["method"] == "initialize" else {RESULT!r}
        answer = {{"jsonrpc": "2.0", "id": message["id"], "result": result}}
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\\n")
        sys.stdout.flush()
"""
AGENT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"protocolVersion": 1, "agentCapabilities": {}, "sessionId": "s"}
    if message.get("method") == "session/new":
        open(PATH, "w").write(json.dumps(message["params"]["mcpServers"][0]))
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\\n")
        sys.stdout.flush()
"""


async def main(calls: int) -> dict[str, Any]:
    direct = await measure([sys.executable, "-c", SERVER], ENV, calls)
    bridged = await through_the_bridge(calls)
    return {"direct": direct, "bridged": bridged, "shim": start_of_the_shim()}


async def through_the_bridge(calls: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        script, given = _agent_in(Path(directory))
        argv = [sys.executable, "-m", "conductor", "agent", f"{sys.executable} {script}"]
        child = start_child(argv, env=ENV, cwd=None)
        handlers: dict[str, Callable[[Any], Any]] = {
            "mcp/connect": lambda params: {"connectionId": "c"},
            "mcp/disconnect": lambda params: {},
            "mcp/message": lambda p: INITIALIZED if p["method"] == "initialize" else RESULT,
        }
        client = Client(child.transport, handlers)
        try:
            async with client.open():
                await client.initialize()
                server = {"type": "acp", "name": "bench", "serverId": "b"}
                await client.new_session("/", [server])
                entry = json.loads(await trio.Path(given).read_text())
                env = {one["name"]: one["value"] for one in entry["env"]}
                return await measure([entry["command"], *entry["args"]], env, calls)
        finally:
            await _end(child)


def _agent_in(directory: Path) -> tuple[Path, Path]:
    """An agent that writes down the server that it was given."""
    script, given = directory / "agent.py", directory / "given.json"
    script.write_text(f"PATH = {str(given)!r}\n{AGENT}")
    return script, given


async def measure(argv: list[str], env: dict[str, str], calls: int) -> dict[str, float]:
    """Latency of calls one after the other, and calls per second with 64 at a time."""
    begun = time.perf_counter()
    child = start_child(argv, env=env, cwd=None)
    endpoint = JsonRpcPeer(child.transport)
    try:
        async with endpoint.open():
            await endpoint.request("initialize", {})
            first = time.perf_counter() - begun
            times = []
            for _ in range(calls):
                start = time.perf_counter()
                await endpoint.request("tools/call", {"name": "echo", "arguments": {}})
                times.append(time.perf_counter() - start)
            start = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(64):
                    nursery.start_soon(_calls, endpoint, calls // 16)
            rate = 64 * (calls // 16) / (time.perf_counter() - start)
    finally:
        await _end(child)
    return {
        "first answer ms": round(first * 1000, 2),
        "p50 us": round(statistics.median(times) * 1e6, 1),
        "p99 us": round(sorted(times)[int(len(times) * 0.99)] * 1e6, 1),
        "calls per s": round(rate),
    }


def start_of_the_shim() -> dict[str, float]:
    """What a shim costs that finds no bridge, against an interpreter that does nothing."""
    shim = str(Path(__file__).parents[2] / "bridges" / "shim.py")
    bare = _best([sys.executable, "-I", "-S", "-c", "pass"])
    whole = _best([sys.executable, "-I", "-S", shim])
    return {"bare interpreter ms": round(bare, 2), "shim ms": round(whole, 2)}


def _best(argv: list[str], runs: int = 20) -> float:
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run(argv, env=ENV, stderr=subprocess.DEVNULL, check=False)
        times.append(time.perf_counter() - begun)
    return min(times) * 1000


async def _calls(endpoint: JsonRpcPeer, count: int) -> None:
    for _ in range(count):
        await endpoint.request("tools/call", {"name": "echo", "arguments": {}})


async def _end(child: ChildProcess) -> None:
    child.transport.close_writing()  # killed, it would leave its socket behind
    with trio.move_on_after(5):
        await child.wait()
    child.signal(signal.SIGKILL)
    child.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = trio.run(main, options.calls)
    if options.json:
        print(json.dumps(found))
    else:
        for name, values in found.items():
            print(f"{name:8}", "  ".join(f"{key}: {value}" for key, value in values.items()))
