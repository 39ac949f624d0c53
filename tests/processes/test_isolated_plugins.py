"""The module and the constructor of a plugin run in no process of the conductor's commands."""

import json
from pathlib import Path

import pytest
from support.peers.process import CONDUCTOR, agent

PLUGIN = """
import os
import sys

import attrs

from conductor.proxy import Proxy


def report(what):
    modules = [word for word in sys.orig_argv if word.startswith("conductor.")]
    with open(os.path.join(os.path.dirname(__file__), "reports"), "a") as file:
        file.write(f"{what} {os.getpid()} {' '.join(modules)}\\n")


@attrs.define
class Reports(Proxy):
    '''Reports where it runs.'''

    def __attrs_post_init__(self):
        report("constructor")


report("module")
"""
CHECKER = "conductor.cli.plugin_checks"
ISOLATED = "conductor.standalone"


@pytest.fixture
def plugin(tmp_path):
    """The plugin, and what it reported: (what, module of the process), without the process ids,
    of which none may be the given one."""
    path = tmp_path / "reports.py"
    path.write_text(PLUGIN)

    def component(**keys):
        return {"name": "reports", "use": f"{path}:Reports", **keys}

    def reports(pid):
        file = tmp_path / "reports"
        found = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        assert str(pid) not in [each[1] for each in found]
        return [(each[0], *each[2:]) for each in found]

    component.reports = reports
    return component


def both(process):
    return [("module", process), ("constructor", process)]


@pytest.fixture
def finished(start):
    """Run a command to its end; its process id and its output."""

    def finished(*arguments, code=0, **options):
        editor = start(*arguments, **options)
        editor.close_stdin()
        output = b"".join(iter(editor.read_bytes, b""))
        assert editor.wait() == code
        return editor.pid, output.decode()

    return finished


def nested(chain_file, plugin):
    """The plugin in a chain inside a chain."""
    chain_file(None, plugin(isolate=True), file_name="inner")
    return {"chain": "./inner.yaml"}


def nested_process(chain_file, plugin):
    """The plugin in a conductor of its own, in proxy mode."""
    inner = chain_file(None, plugin(isolate=True), file_name="inner")
    return [*CONDUCTOR, "proxy", str(inner)]


def alone(chain_file, plugin):
    return plugin(isolate=True)


@pytest.mark.parametrize("where", [alone, nested, nested_process], ids=lambda each: each.__name__)
def test_run(start_file, chain_file, plugin, where):
    editor = start_file(agent(), where(chain_file, plugin))
    editor.open()
    assert editor.leave() == 0

    assert plugin.reports(editor.pid) == both(ISOLATED)


def test_check_with_start(finished, chain_file, plugin):
    pid, _ = finished("check", "--start", chain_file(agent(), plugin(isolate=True)))

    assert plugin.reports(pid) == [*both(CHECKER), *both(ISOLATED)]


@pytest.mark.parametrize("keys", [{}, {"isolate": True}])
def test_check(finished, chain_file, plugin, keys):
    pid, _ = finished("check", chain_file(agent(), plugin(**keys)))

    assert plugin.reports(pid) == both(CHECKER)


def test_serve(start, chain_file, plugin, tmp_path):
    import socket
    import tempfile

    from support.peers.process import conversation, encoded

    chain = chain_file(agent(), plugin(isolate=True))
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # short enough for a socket's path
        editor = start("serve", str(chain), "--listen", f"unix:{directory}/s")
        editor.wait_log("listening on")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{directory}/s")
            client.sendall(encoded(conversation("hello")[0]))
            assert json.loads(client.makefile("rb").readline())["id"] == 1
        editor.signal(15)
        editor.wait()

    assert plugin.reports(editor.pid) == [*both(CHECKER), *both(ISOLATED)]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package with this component module."""

    def install(source, name="reports"):
        package = tmp_path / "packages"
        info = package / "reports-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reports\nVersion: 1.0\n")
        (package / f"{name}_module.py").write_text(source)
        with (info / "entry_points.txt").open("a") as file:
            file.write(f"[conductor.components]\n{name} = {name}_module:Reports\n")
        root = Path(__file__).parents[2]
        monkeypatch.setenv("PYTHONPATH", f"{root}:{package}")
        return package

    return install


def test_components_imports_in_another_process_and_makes_nothing(finished, installed):
    package = installed(PLUGIN)

    pid, output = finished("components", "reports", forked=False)

    assert output == "reports (proxy): Reports where it runs.\n"
    (what, where, module) = (package / "reports").read_text().split()
    assert (what, module) == ("module", "conductor.cli.components")
    assert where != str(pid)


def test_a_module_that_ends_the_process_does_not_end_the_list(finished, installed):
    installed("import os\nos._exit(0)\n")

    _, output = finished("components", "reports", "usage", code=1, forked=False)

    assert output.startswith("usage (proxy): ")


def test_output_of_a_module_is_not_in_the_list(finished, installed):
    installed(PLUGIN + "print('hello from the module')\n")

    _, output = finished("components", "reports", forked=False)

    assert "hello" not in output


def test_an_isolated_plugin_may_end_its_process_at_import(start_file, chain_file, plugin):
    component = plugin(isolate=True)
    path = Path(component["use"].rpartition(":")[0])
    path.write_text("import os\nos.kill(os.getpid(), 9)\n")

    editor = start_file(agent(), component)

    error = editor.initialize()["error"]
    assert "SIGKILL" in error["message"]
    assert editor.leave() == 3
