"""What `acp-conductor agent …`, and `run FILE`, have not imported when they have answered
`initialize`: names, never times. The importer is named: `rich, imported by conductor.cli.show`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from support.raw_json import dumps

from .subjects import AGENT, PROXY, ROOT

NOT_NEEDED = {
    "asyncio",
    "conductor.client",
    "conductor.proxy",
    "conductor.remote",
    "conductor.schema.v1",
    "conductor.schema.v2",
    "conductor.server",
    "conductor.testing",
    "conductor.tracing.records",
    "mcp",
    "rich",
}
"""What takes long, and the first use of which is later, or never."""

PROGRAM = '''
"""Runs `python -m conductor`, and writes down who imported what."""

import os, runpy, sys

folder = sys.argv.pop(1)
before, importers = set(sys.modules), {}

def write(name):
    found = {m: importers.get(m, "importlib") for m in [*sys.modules] if m not in before}
    import json
    with open(f"{folder}/{name}", "w") as file:
        json.dump(found, file)
def see(event, arguments):
    if event == "import":
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_globals.get("__name__", ""):
            frame = frame.f_back
        importers.setdefault(arguments[0], frame.f_globals.get("__name__", "?") if frame else "?")

sys.addaudithook(see)
leave = os._exit
os._exit = lambda status: (write("answered"), leave(status))
runpy.run_module("conductor", run_name="__main__", alter_sys=True)
'''


def look(folder: Path, *words: str) -> Path:
    """Writes to a directory what was imported at the end of a conversation that consists of
    `initialize`."""
    request = {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    ours, editors = os.pipe()
    os.write(editors, dumps({"jsonrpc": "2.0", **request}) + b"\n")
    with (
        os.fdopen(ours) as stdin,
        os.fdopen(editors, "w") as editor,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, folder, *words],
            cwd=ROOT,
            env=os.environ | {"ACP_CONDUCTOR_LOG_FORMAT": "json"},  # as of an editor
            stdin=stdin,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        assert "result" in json.loads(process.stdout.readline())
        editor.close()
    assert process.returncode == 0
    return folder


def read(path: Path) -> dict[str, str]:
    modules: dict[str, str] = json.loads(path.read_text())
    return modules


def check(modules: dict[str, str], unwanted: set[str]) -> None:
    """Nothing of what is unwanted was imported; a package is blamed on who imported of it first."""
    firsts = {name.partition(".")[0]: importer for name, importer in reversed(modules.items())}
    wrong = [f"{name}, imported by {({**firsts, **modules})[name]}" for name in sorted(unwanted)]

    assert not wrong, "\n" + "\n".join(wrong)


def test_agent_imports_no_slow_module_before_initialize_is_answered(tmp_path):
    look(tmp_path, "agent", shlex.join(PROXY), shlex.join(AGENT))
    modules = read(tmp_path / "answered")

    check(modules, (NOT_NEEDED | {"yaml"}) & modules.keys())


def test_run_imports_no_slow_module_before_initialize_is_answered(tmp_path):
    chain = {"version": 1, "proxies": [{"run": PROXY}], "agent": {"run": AGENT}}
    (tmp_path / "chain.yaml").write_text(json.dumps(chain))
    look(tmp_path, "run", str(tmp_path / "chain.yaml"))
    modules = read(tmp_path / "answered")

    check(modules, NOT_NEEDED & modules.keys())
