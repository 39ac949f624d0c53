"""What `acp-conductor agent …`, and `run FILE`, have imported when their components start, and when
they have answered `initialize`: names, never times.

Components start first, so that their start overlaps the conductor's: no slow module may be
imported before. The importer that breaks a budget is named: `trio, imported by
conductor.cli.early_spawn`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.raw_json import dumps

from .subjects import AGENT, PROXY, ROOT

OURS_BEFORE_THE_START = {
    "conductor",
    "conductor.cli",
    "conductor.cli.early_spawn",
    "conductor.cli.component_argument",
    "conductor.exit_codes",  # without a free descriptor, it could not be imported any more
    "conductor.log",
    "conductor.transport",
    "conductor.transport.process_tree",
    "conductor.transport.orphan_guard",
    "conductor.transport.inherited_stdio",
    "conductor.transport.spawn",
}
TAKES_LONG = {"asyncio", "email", "inspect", "logging", "multiprocessing", "ssl", "urllib"}
"""Of the standard library. What of it takes short may be imported at any time."""

THIRD_PARTY_BEFORE_THE_ANSWER = {
    # What routes, and what that imports.
    *("attr", "attrs", "msgspec", "trio"),
    *("idna", "outcome", "sniffio", "sortedcontainers", "typing_extensions"),
}
TAKES_LONG_AND_IS_NOT_NEEDED = {
    "asyncio",
    "click",
    "conductor.chainfile.loader",
    "conductor.cli.command_group",
    "conductor.client",
    "conductor.plugins.loading",
    "conductor.supervision.handler_reports",
    "conductor.supervision.stall_monitor",
    "conductor.proxy",
    "conductor.remote",
    "conductor.chain.detached_client",
    "conductor.schema.v1",
    "conductor.schema.v2",
    "conductor.server",
    "conductor.testing",
    "conductor.tracing.records",
    "importlib.metadata",
    "yaml",
}

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
    with open(f"{folder}/{name}.attrs", "w") as file:
        json.dump({m: c for m in found if (c := attrs_classes(sys.modules[m]))}, file)

def attrs_classes(module):
    return [
        name for name, each in vars(module).items()
        if isinstance(each, type) and each.__module__ == module.__name__
        and "__attrs_attrs__" in vars(each)
    ]

def see(event, arguments):
    if event == "import":
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_globals.get("__name__", ""):
            frame = frame.f_back
        importers.setdefault(arguments[0], frame.f_globals.get("__name__", "?") if frame else "?")
    elif event == "subprocess.Popen" and not os.path.exists(f"{folder}/started"):
        write("started")

sys.addaudithook(see)
leave = os._exit
os._exit = lambda status: (write("answered"), leave(status))
runpy.run_module("conductor", run_name="__main__", alter_sys=True)
'''


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `agent …` has imported: see `look`."""
    words = [shlex.join(PROXY), shlex.join(AGENT)]
    return look(tmp_path_factory.mktemp("imported"), "agent", *words)


@pytest.fixture(scope="module")
def imported_for_wrap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `wrap …` has imported: see `look`."""
    folder = tmp_path_factory.mktemp("imported_for_wrap")
    return look(folder, "wrap", "--use", "usage", "--", *AGENT)


@pytest.fixture(scope="module")
def imported_for_a_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `run FILE` has imported: see `look`."""
    folder = tmp_path_factory.mktemp("imported_for_a_file")
    chain = {"version": 1, "proxies": [{"run": PROXY}], "agent": {"run": AGENT}}
    (folder / "chain.yaml").write_text(json.dumps(chain))
    return look(folder, "run", str(folder / "chain.yaml"))


def look(folder: Path, *words: str) -> Path:
    """Writes to a directory what was imported when the components started, and what at the end of a
    conversation that consists of `initialize`."""
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


def ours(modules: dict[str, str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in ("conductor", "bridges")}


def third_party(modules: dict[str, str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules if name not in ours(modules)}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "__main__"}


def check(modules: dict[str, str], unwanted: set[str]) -> None:
    """Nothing of what is unwanted was imported; a package is blamed on who imported of it first."""
    firsts = {name.partition(".")[0]: importer for name, importer in reversed(modules.items())}
    wrong = [f"{name}, imported by {({**firsts, **modules})[name]}" for name in sorted(unwanted)]

    assert not wrong, "\n" + "\n".join(wrong)


def test_before_the_components_start_nothing_of_a_third_party_is_imported(imported):
    modules = read(imported / "started")

    check(modules, third_party(modules))


def test_before_the_components_start_no_slow_module_is_imported(imported):
    modules = read(imported / "started")

    check(modules, TAKES_LONG & modules.keys())


def test_before_the_components_start_only_spawning_modules_are_imported(imported):
    modules = read(imported / "started")

    check(modules, ours(modules) - OURS_BEFORE_THE_START)


def test_before_initialize_is_answered_only_routing_modules_are_imported(imported):
    modules = read(imported / "answered")

    check(modules, third_party(modules) - THIRD_PARTY_BEFORE_THE_ANSWER)


def test_before_initialize_is_answered_no_other_slow_module_is_imported(imported):
    modules = read(imported / "answered")

    check(modules, TAKES_LONG_AND_IS_NOT_NEEDED & modules.keys())


def test_before_initialize_is_answered_no_attrs_class_of_ours_is_defined(imported):
    """Each takes 0.4 ms; a plain class takes 0.01, a Struct 0.03."""
    classes = json.loads((imported / "answered.attrs").read_text())

    assert {name: classes[name] for name in ours(classes)} == {}


def test_before_the_components_of_a_file_start_only_its_reader_is_imported(imported_for_a_file):
    modules = read(imported_for_a_file / "started")

    check(modules, {"asyncio", "click", "structlog", "trio"} & modules.keys())


def test_before_a_wrapped_agent_starts_only_spawning_modules_are_imported(imported_for_wrap):
    modules = read(imported_for_wrap / "started")
    own = {"conductor.cli.unwrapped_agent", "conductor.cli.wrap_arguments"}

    check(modules, third_party(modules) | TAKES_LONG & modules.keys())
    check(modules, ours(modules) - OURS_BEFORE_THE_START - own)
