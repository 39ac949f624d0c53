"""A chain whose agent is elsewhere, with the client of the testing kit; and servers to reach."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from conductor.chain.build import build_components
from conductor.chain.components import ChainSpec
from conductor.chainfile.model import ComponentSpec
from conductor.client.embedding import attach
from conductor.limits import Limits
from conductor.testing import FakeClient

HERE = Path(__file__).parent


@asynccontextmanager
async def reach(
    *,
    proxies: Sequence[ComponentSpec] = (),
    seconds: float = 30.0,
    limits: Limits | None = None,
    **agent: Any,
) -> AsyncIterator[FakeClient]:
    """A client of a chain with this agent, named "far". A test that hangs fails."""
    specs = [*proxies, ComponentSpec(name="far", **agent)]

    def make() -> Any:
        return build_components(specs, mode="agent", mcp_bridge="auto")

    with trio.fail_after(seconds):
        spec = ChainSpec(make, limits=limits or Limits(), stop_timeout=2.0)
        async with attach(FakeClient, spec) as attached:
            attached.client.attached = attached
            yield attached.client


@contextmanager
def program(*argv: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program and the first line that it prints; it is killed at the end."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **more)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def sdk_server(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The Python SDK's server, and where it is: `127.0.0.1:PORT`."""
    with program(sys.executable, str(HERE / "components" / "sdk_server.py"), *arguments) as (
        process,
        port,
    ):
        yield process, f"127.0.0.1:{port}"
