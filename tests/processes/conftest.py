"""Run the conductor; check after each test that no process, descriptor or file is left."""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from support.forked_command import CommandServer
from support.leftovers import adopt_orphans, descendants, running
from support.peers.process import PATIENCE, ROOT, Editor, words

MARK = "ACP_TEST_MARK"


@pytest.fixture(scope="session", autouse=True)
def orphans_come_to_us() -> None:
    """Orphans of the conductor become children of this process and are found."""
    adopt_orphans()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, no descriptor and no temporary file outlives a test."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = str(uuid4())
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv(MARK, mark)
    gc.collect()  # what earlier tests have left to it
    gc.freeze()  # the rest lives on: the next test need not traverse it
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    left = [str(each) for each in psutil.wait_procs(descendants(), PATIENCE)[1]]
    left += running(process for process in psutil.process_iter() if is_marked(process, mark))
    assert left == []
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert list(temporary.iterdir()) == []


def is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == mark
    except psutil.Error:
        return False


@pytest.fixture(scope="session")
def imported(orphans_come_to_us: None, command_server: CommandServer) -> CommandServer | None:
    """Forks conductors whose imports are done. A file whose conductors are to be new programs has
    a fixture of this name that is None."""
    if sys.platform != "linux":
        return None  # orphans do not come to us
    command_server.start()
    return command_server


@pytest.fixture
def start(imported: CommandServer | None, nothing_is_left: None) -> Iterator[Callable[..., Editor]]:
    """Start the conductor with these arguments, as an editor does: a new program, if it gets other
    descriptors than pipes, or another environment; else, by default, one that is `imported`."""
    editors: list[Editor] = []

    def start(*arguments: str, forked: bool = True, **options: Any) -> Editor:
        server = imported if forked and options.keys() <= {"cwd"} else None
        editors.append(Editor(list(map(str, arguments)), server, **options))
        return editors[-1]

    yield start
    for editor in editors:
        editor.close()


@pytest.fixture
def start_agent(start: Callable[..., Editor]) -> Callable[..., Editor]:
    """Start `acp-conductor agent` with these commands."""
    return lambda *commands, **options: start("agent", *words(*commands), **options)


@pytest.fixture
def chain_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a chain file with this agent, these proxies and these other keys."""

    def chain_file(agent: Any, *proxies: Any, **keys: Any) -> Path:
        path = tmp_path / f"{keys.pop('file_name', 'chain')}.yaml"
        components = {} if agent is None else {"agent": component(agent)}
        chain = {"version": 1, "proxies": list(map(component, proxies)), **components, **keys}
        path.write_text(json.dumps(chain, indent=2))  # which is YAML, too
        return path

    def component(given: Any) -> Any:
        given = {"run": given} if isinstance(given, list) else given
        return {"stop_timeout": "300ms", **given} if "run" in given else given

    return chain_file


@pytest.fixture
def start_file(
    start: Callable[..., Editor], chain_file: Callable[..., Path]
) -> Callable[..., Editor]:
    """Write a chain file, and start `acp-conductor run` with it. A failed start is an error."""
    error = {"on_start_failure": "error"}
    return lambda agent, *proxies, **keys: start(
        "run", str(chain_file(agent, *proxies, **error | keys))
    )


@pytest.fixture
def once(tmp_path: Path) -> Callable[[str], list[str]]:
    """The flags of misbehave.py for a fault of the first process only."""

    def once(fault: str, at: str) -> list[str]:
        path = tmp_path / f"once-{fault}-{at.replace('/', '_')}"
        return ["--fault", fault, "--at", at, "--once", str(path)]

    return once


@pytest.fixture
def run_chain(start: Callable[..., Editor], tmp_path: Path) -> Iterator[Callable[..., Editor]]:
    """Start the conductor with a chain of these components: the agent first, then the proxies.
    A failed start is an error.

    A component is a command, or a mapping of what a chain file says about it.
    """

    def component(given: Any) -> Any:
        return {"run": given} if isinstance(given, list) else given

    def run_chain(
        agent: Any, *proxies: Any, log: str = "warning", stderr: int | None = None, **keys: Any
    ) -> Editor:
        path = tmp_path / "chain.yaml"
        chain = {"version": 1, "mcp_bridge": "off", "on_start_failure": "error"}
        chain["proxies"] = list(map(component, proxies))
        path.write_text(json.dumps({**chain, "agent": component(agent), **keys}))
        options = {} if stderr is None else {"stderr": stderr}
        return start("--log", log, "run", str(path), **options)

    return run_chain
