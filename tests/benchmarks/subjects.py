"""The subjects: the conductor and its alternatives."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

__all__ = ["RELAY", "SUBJECTS", "Missing", "Subject", "conductor"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NPM = ROOT / ".cache" / "interop" / "npm"
"""Where the tests with the TypeScript SDK (tests/interop) install it."""

BARE = [sys.executable, "-I", "-S"]
AGENT = [*BARE, str(HERE / "agent.py")]
PROXY = [*BARE, str(HERE / "proxy.py")]
RELAY = "byte relay"


class Missing(Exception):
    """A subject cannot be run here; the text says why."""


@attrs.frozen
class Subject:
    """`command` takes the number of proxies; it raises `Missing`."""

    name: str
    command: Callable[[int], list[str]]
    chains: Sequence[int] = (0,)


def conductor(proxies: int) -> list[str]:
    words = [*[PROXY] * proxies, AGENT]
    return [sys.executable, "-m", "conductor", "agent", *map(shlex.join, words)]


def byte_relay(_: int) -> list[str]:
    return [*BARE, str(HERE / "relay.py"), *AGENT]


def python_sdk(_: int) -> list[str]:
    if importlib.util.find_spec("acp") is None:
        raise Missing("the package agent-client-protocol is not installed")
    return [sys.executable, str(HERE / "sdk_relay.py"), *AGENT]


def typescript_sdk(_: int) -> list[str]:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Missing(f"{program} is not on PATH")
    NPM.mkdir(parents=True, exist_ok=True)
    with open(NPM.parent / "npm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install_packages()
        script = Path(shutil.copy(HERE / "sdk_relay.mjs", NPM))  # it finds packages beside it
    return ["node", str(script), *AGENT]


def _install_packages() -> None:
    wanted, installed = (ROOT / "tests/interop/package.json").read_text(), NPM / "installed.json"
    if installed.exists() and installed.read_text() == wanted:
        return
    (NPM / "package.json").write_text(wanted)
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    result = subprocess.run(install, cwd=NPM, capture_output=True, text=True)
    if result.returncode:
        raise Missing(f"npm install failed with {result.returncode}: {result.stderr[-300:]}")
    installed.write_text(wanted)


def rust_conductor(proxies: int) -> list[str]:
    program = os.environ.get("ACP_RUST_CONDUCTOR", "").split(os.pathsep)[0]
    program = program or shutil.which("agent-client-protocol-conductor") or ""
    if not program:
        raise Missing("set ACP_RUST_CONDUCTOR, or put it on PATH")
    return [program, "agent", *map(shlex.join, [*[PROXY] * proxies, AGENT])]


SUBJECTS = [
    Subject(RELAY, byte_relay),
    Subject("conductor", conductor, (0, 1, 3)),
    Subject("Rust conductor", rust_conductor, (0, 1, 3)),
    Subject("Python SDK relay", python_sdk),
    Subject("TypeScript SDK relay", typescript_sdk),
]
