"""Failures are tested with real processes: what `tests/processes` has for that is used here, too."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROCESSES = Path(__file__).parents[1] / "processes"
sys.path.insert(0, str(PROCESSES))

import editor  # noqa: E402

editor.PATIENCE = 30.0
_spec = importlib.util.spec_from_file_location("process_fixtures", PROCESSES / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

orphans_come_to_us = _fixtures.orphans_come_to_us
nothing_is_left = _fixtures.nothing_is_left
start = _fixtures.start
start_agent = _fixtures.start_agent
chain_file = _fixtures.chain_file


@pytest.fixture
def once(tmp_path: Path) -> Callable[[str], list[str]]:
    """The flags of misbehave.py for a fault of the first process only; makes a new one each time."""

    def once(fault: str, at: str) -> list[str]:
        path = tmp_path / f"once-{fault}-{at.replace('/', '_')}"
        return ["--fault", fault, "--at", at, "--once", str(path)]

    return once


@pytest.fixture
def run_chain(
    start: Callable[..., editor.Editor], tmp_path: Path
) -> Iterator[Callable[..., editor.Editor]]:
    """Start the conductor with a chain of these components: the agent first, then the proxies.

    A component is a command, or a mapping of what a chain file says about it.
    """

    def component(given: Any) -> Any:
        return {"run": given} if isinstance(given, list) else given

    def run_chain(
        agent: Any, *proxies: Any, log: str = "warning", stderr: int | None = None, **keys: Any
    ) -> editor.Editor:
        path = tmp_path / "chain.yaml"
        chain = {"version": 1, "mcp_bridge": "off", "proxies": list(map(component, proxies))}
        path.write_text(json.dumps({**chain, "agent": component(agent), **keys}))
        options = {} if stderr is None else {"stderr": stderr}
        return start("--log", log, "run", str(path), **options)

    return run_chain
