"""Failures are tested with real processes, with what `tests/processes` has for that."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import conftest as processes
from processes import editor

editor.PATIENCE = 30.0

orphans_come_to_us = processes.orphans_come_to_us
nothing_is_left = processes.nothing_is_left
start = processes.start
start_agent = processes.start_agent
chain_file = processes.chain_file


@pytest.fixture
def once(tmp_path: Path) -> Callable[[str], list[str]]:
    """The flags of misbehave.py for a fault of the first process only."""

    def once(fault: str, at: str) -> list[str]:
        path = tmp_path / f"once-{fault}-{at.replace('/', '_')}"
        return ["--fault", fault, "--at", at, "--once", str(path)]

    return once


@pytest.fixture
def run_chain(
    start: Callable[..., editor.Editor], tmp_path: Path
) -> Iterator[Callable[..., editor.Editor]]:
    """Start the conductor with a chain of these components: the agent first, then the proxies.
    A failed start is an error.

    A component is a command, or a mapping of what a chain file says about it.
    """

    def component(given: Any) -> Any:
        return {"run": given} if isinstance(given, list) else given

    def run_chain(
        agent: Any, *proxies: Any, log: str = "warning", stderr: int | None = None, **keys: Any
    ) -> editor.Editor:
        path = tmp_path / "chain.yaml"
        chain = {"version": 1, "mcp_bridge": "off", "on_start_failure": "error"}
        chain["proxies"] = list(map(component, proxies))
        path.write_text(json.dumps({**chain, "agent": component(agent), **keys}))
        options = {} if stderr is None else {"stderr": stderr}
        return start("--log", log, "run", str(path), **options)

    return run_chain
