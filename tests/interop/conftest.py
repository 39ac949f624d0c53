"""Real third-party peers, and how a conversation between them is run.

`peer(name)` is the command of a peer in this directory. The Python peers need the official SDK
(PyPI agent-client-protocol), the TypeScript peers node, npm and the packages in package.json, which
are installed once into `.cache/interop/npm`. Where one of these is missing the tests are skipped
with the reason, in CI (`CI=true`) they fail.
"""

import fcntl
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.leftovers import adopt_orphans, descendants, left_behind

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NPM = ROOT / ".cache" / "interop" / "npm"
PATIENCE = 60  # seconds; only a hanging conversation takes that long

Command = list[str]
Summary = dict[str, Any]


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def node_peers() -> Path:
    """The directory that holds the TypeScript peers beside the packages that they import."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            unavailable(f"the TypeScript peers need {program}, which is not on PATH")
    NPM.mkdir(parents=True, exist_ok=True)
    with open(NPM.parent / "npm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_packages()
        for source in HERE.rglob("*.mjs"):
            shutil.copy(source, NPM / f"{source.name}.new")
            os.replace(NPM / f"{source.name}.new", NPM / source.name)
    return NPM


def install_packages() -> None:
    wanted, installed = (HERE / "package.json").read_text(), NPM / "installed.json"
    if installed.exists() and installed.read_text() == wanted:
        return
    (NPM / "package.json").write_text(wanted)
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    result = subprocess.run(install, cwd=NPM, capture_output=True, text=True)
    if result.returncode:
        unavailable(f"npm install failed with {result.returncode}: {result.stderr[-2000:]}")
    installed.write_text(wanted)


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> Callable[..., Command]:
    def peer(name: str, *arguments: str) -> Command:
        if name.startswith("ts_"):
            directory: Path = request.getfixturevalue("node_peers")
            return ["node", str(directory / f"{name}.mjs"), *arguments]
        if importlib.util.find_spec("acp") is None:
            unavailable("the Python peers need the package agent-client-protocol")
        return [sys.executable, str(HERE / f"{name}.py"), *arguments]

    return peer


@pytest.fixture(scope="session")
def component() -> Callable[..., Command]:
    """The command of a program in tests/support/components."""

    def component(name: str, *arguments: str) -> Command:
        return [
            sys.executable,
            str(HERE.parent / "support" / "components" / f"{name}.py"),
            *arguments,
        ]

    return component


@pytest.fixture(scope="session")
def conductor() -> Callable[..., Command]:
    """The command of the conductor; `env`, because clients start it without this environment."""

    def conductor(mode: str, *components: Command) -> Command:
        ours = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "conductor", mode]
        return [*ours, *map(shlex.join, components)]

    return conductor


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that clients work in; it appears in what they print."""
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture
def converse(workspace: Path) -> Callable[[Command, Command], Summary]:
    """Run a client with an agent, and return what the client printed."""

    def converse(client: Command, agent: Command) -> Summary:
        result = subprocess.run(
            [*client, *agent],
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PATIENCE,
        )
        assert result.returncode == 0, f"the client ended with {result.returncode}"
        summary: Summary = json.loads(result.stdout)
        return summary

    return converse


@pytest.fixture(scope="session")
def seen_alone() -> dict[tuple[str, ...], Summary]:
    return {}


@pytest.fixture
def alone(
    converse: Callable[[Command, Command], Summary], seen_alone: dict[tuple[str, ...], Summary]
) -> Callable[[Command, Command], Summary]:
    """What a client prints when it starts the agent itself; each pair is run once."""

    def alone(client: Command, agent: Command) -> Summary:
        pair = (*client, *agent)
        if pair not in seen_alone:
            seen_alone[pair] = converse(client, agent)
        return deepcopy(seen_alone[pair])

    return alone


@pytest.fixture(scope="session")
def tagged() -> Callable[..., Summary]:
    """The summary as tagging proxies leave it; the first name is that of the client's neighbour."""

    def tagged(summary: Summary, *names: str) -> Summary:
        to_agent = "".join(f"[{name}]" for name in reversed(names))
        to_client = "".join(f"{name}>" for name in names)
        for event in summary["events"]:
            match event:
                case ["update", _, {"sessionUpdate": "agent_message_chunk", "content": content}]:
                    text = content["text"].replace("you said: ", f"you said: {to_agent}")
                    content["text"] = to_client + text
                case ["update", _, {"sessionUpdate": "user_message", "content": [content]}]:
                    content["text"] = to_agent + content["text"]
        return summary

    return tagged


@pytest.fixture(scope="session")
def check_same() -> Callable[[Summary, Summary], None]:
    """Compare two summaries, event by event first: a difference between the wholes fills screens.

    A conductor advertises MCP over ACP; nothing else of `initialize` is its own.
    """

    def check_same(actual: Summary, expected: Summary) -> None:
        for number, pair in enumerate(zip(actual["events"], expected["events"], strict=False)):
            assert pair[0] == pair[1], f"event {number}"
        without_mcp_over_acp(actual["initialize"])
        without_mcp_over_acp(expected["initialize"])
        assert actual == expected

    return check_same


def without_mcp_over_acp(initialize: Summary) -> None:
    version_1 = initialize.get("agentCapabilities", {}).get("mcpCapabilities", {})
    version_2 = initialize.get("capabilities", {}).get("session", {}).get("mcp", {})
    version_1.pop("acp", None)
    version_2.pop("acp", None)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    adopt_orphans()
    before = descendants()
    yield
    assert left_behind(before) == []
