"""What a sandbox must not change: found from the components of a chain; see also
`processes/test_sandbox.py`."""

from __future__ import annotations

import os
from functools import partial
from glob import glob

import pytest
import trio

from conductor.chainfile import load
from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember
from conductor.errors import StartError
from conductor.plugins.loading import load_class
from conductor.proxy.commands import run_command
from conductor.transport.local_command import local_command
from conductor.transport.protection import protected
from conductor.transport.spawn import SpawnError

PLUGIN = "from conductor.proxy import Proxy\nclass P(Proxy): pass\n"


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A workspace with files of a chain, in a home directory."""
    for name in ("config", "state", "data"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    app = tmp_path / "app"
    for name in (
        "guards/p.py",
        "root.py",
        "tool",
        "server.py",
        "second.yaml",
        "agents.json",
        "lint.sh",
    ):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(PLUGIN)
    (app / "tool").chmod(0o755)
    (app / "second.yaml").write_text("version: 1\nagent: {run: [true]}\n")
    (app / "chain.lock").write_text("{}")
    monkeypatch.chdir(app)
    return app


@pytest.fixture
def components(app):
    """The protected components of a chain in the workspace."""

    def components(*proxies, sandbox="workspaces: [.]", rest=""):
        lines = [f"  - {proxy}" for proxy in proxies]
        agent = f"agent: {{run: [true], sandbox: {{{sandbox}}}}}"
        text = "\n".join(["version: 1", "proxies:", *lines, agent, rest])
        (app / "chain.yaml").write_text(text if proxies else text.replace("proxies:\n", ""))
        return protected(load("chain.yaml").flat())

    return components


def test_what_runs_outside_or_is_trusted_is_protected(app, components, tmp_path):
    (app / ".acp-conductor.yaml").write_text("version: 1\nproxies: [{use: './trusted.py:P'}]\n")
    (app / "trusted.py").write_text(PLUGIN)
    path = str(app / ".acp-conductor.yaml")
    remember(TrustedFile(path, read_project_file(path, os.environ).files))

    *_, agent = components(
        "use: ./guards/p.py:P",
        "use: ./root.py:P",
        "run: [./tool]",
        "run: [python, server.py, missing.py]",
        "registry: some-proxy",
        "{use: hooks, with: {after: [{run: ['./lint.sh', AGENTS.md]}]}}",
        "{use: failover, with: {agents: [{chain: ./second.yaml}]}}",
        sandbox="workspaces: [., ../config]",
        rest="registry: ./agents.json",
    )

    assert {os.path.relpath(each, app) for each in agent.sandbox.protect} == {
        *("chain.yaml", "chain.lock", "agents.json", "second.yaml", "guards", "root.py", "tool"),
        *("server.py", "lint.sh", ".acp-conductor.yaml", "trusted.py", "../config/acp-conductor"),
    }
    assert (tmp_path / "config/acp-conductor").is_dir()  # else it could be created inside


def test_a_nested_chain_without_components_is_protected(app, components):
    (app / "team.yaml").write_text("version: 1\nproxies: []\n")

    agent = components("chain: ./team.yaml")[-1]

    assert str(app / "team.yaml") in agent.sandbox.protect


@pytest.mark.parametrize(("file", "kept"), [("foo.py", "foo.py"), ("foo/__init__.py", "foo")])
def test_a_component_of_an_editable_installation_is_protected(
    app, components, monkeypatch, file, kept
):
    (app / "foo-1.0.dist-info").mkdir()
    (app / "foo-1.0.dist-info/entry_points.txt").write_text("[conductor.components]\nfoo = foo:P\n")
    (app / file).parent.mkdir(exist_ok=True)
    (app / file).write_text(PLUGIN)
    monkeypatch.syspath_prepend(app)

    agent = components("use: foo")[-1]

    assert str(app / kept) in agent.sandbox.protect


def test_sockets_and_certificates_of_connections_are_protected(app, components):
    """Else the agent would answer in the place of the proxy."""
    (app / "run").mkdir()
    for name in ("run/proxy.sock", "ca.pem"):
        (app / name).touch()

    *_, agent = components("unix: ./run/proxy.sock", "{connect: 'wss://x', tls: {ca: ./ca.pem}}")

    assert {f"{app}/run/proxy.sock", f"{app}/ca.pem"} < {*agent.sandbox.protect}


def test_what_has_the_messages_of_all_proxies_is_hidden(app, components, monkeypatch):
    """`redact` would be for nothing if the agent asked a socket, as `ps` does, for the records."""
    (app / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(app / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(app / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(app / "[tmp]"))
    view = app / "[tmp]" / "acp-conductor-view-x"
    view.mkdir(parents=True)

    agent = components(sandbox="workspaces: [.], hide: [.env]")[-1]

    hidden = {path for pattern in agent.sandbox.hide for path in glob(pattern)}
    assert hidden == {f"{app}/run/acp-conductor", f"{app}/state/acp-conductor", str(view)}


def test_a_plugin_among_the_files_of_the_workspace_imports_no_module_beside_it(app, components):
    """The agent can write a module that takes the place of an installed one."""
    (app / "yaml.py").write_text("raise SystemExit")
    (app / "root.py").write_text(f"import yaml\n{PLUGIN}")
    (app / "other.py").write_text(f"import helper\n{PLUGIN}")
    (app / "helper.py").write_text("")
    plugin, other, _ = components("use: ./root.py:P", "use: ./other.py:P")

    (app / "root.py").write_text("raise SystemExit")

    assert load_class(plugin).__name__ == "P"
    with pytest.raises(StartError, match=r"the module beside it is not loaded, see docs/sandbox"):
        load_class(other)


def test_without_a_sandbox_around_it_a_plugin_is_loaded_as_ever(components):
    plugin, _ = components("use: ./root.py:P", sandbox="workspaces: [guards]")

    assert plugin.files is None


def test_a_link_in_a_workspace_could_be_replaced(app, components, tmp_path):
    (tmp_path / "p.py").write_text(PLUGIN)
    (app / "link").symlink_to(tmp_path)
    (app / "guards/inner").symlink_to(tmp_path)  # in a protected directory

    with pytest.raises(SpawnError, match=f"{app}/link is a link .*: name {tmp_path}/p.py itself"):
        components("use: ./link/p.py:P")
    components("use: ./guards/p.py:P", "use: ./guards/inner/p.py:P")


def test_a_lock_file_in_a_workspace_could_be_created(app, components):
    (app / "chain.lock").unlink()

    with pytest.raises(SpawnError, match="could be created in a sandbox: `acp-conductor lock`"):
        components("registry: some-proxy")


def test_a_link_to_a_program_is_protected_with_its_directory(app, components):
    (app / "bin").mkdir()
    (app / "bin/python").symlink_to("/bin/sh")

    *_, agent = components("run: [bin/python, server.py]")

    assert str(app / "bin") in agent.sandbox.protect
    (app / "link").symlink_to("tool")
    with pytest.raises(SpawnError, match=f"{app}/link is a link .*: name {app}/tool itself"):
        components("run: [./link]")


def test_a_script_in_an_option_or_in_a_text_for_a_shell_is_protected(app, components):
    *_, agent = components("""run: [sh, -c, "exec './tool' -q", --require=./server.py]""")

    assert {f"{app}/tool", f"{app}/server.py"} < {*agent.sandbox.protect}


def test_programs_outside_come_from_where_no_sandbox_can_put_one(app, components, monkeypatch):
    for directory in (app / "bin", app.parent / "system"):
        directory.mkdir()
        (directory / "bwrap").write_text("#!/bin/sh\n")
        (directory / "bwrap").chmod(0o755)
    path = os.pathsep.join([str(app / "bin"), "../system", str(app.parent / "system"), "/bin"])
    monkeypatch.setenv("PATH", path)

    tool, agent = components("run: [tool]")

    assert local_command(agent, os.environ)[0][0] == f"{app.parent}/system/bwrap"
    assert local_command(agent, os.environ)[1]["PATH"] == path  # its own programs
    safe = os.pathsep.join([str(app.parent / "system"), "/bin"])
    assert local_command(tool, os.environ)[1]["PATH"] == f"{safe}{os.pathsep}{path}"
    assert trio.run(partial(run_command, ["printenv", "PATH"], seconds=60)).stdout.decode() == (
        f"{safe}{os.pathsep}{path}\n"
    )


def test_what_another_sandbox_shows_can_be_replaced_by_no_link(app, components):
    (app / "data/state").mkdir(parents=True)
    other = "{run: [./tool], sandbox: {workspaces: [data/state], read: [later]}}"

    *_, agent = components(other, sandbox="workspaces: [.], read: [data]")
    assert agent.sandbox.keep == ()  # it is read-only, with its parts

    shown, agent = components(other)
    assert agent.sandbox.keep == (f"{app}/data/state",)
    assert shown.sandbox.read == ()  # what is created later may be a link

    (app / "data/state").rmdir()
    (app / "data/state").symlink_to(app.parent)
    with pytest.raises(SpawnError, match=f"{app}/data/state is a link"):
        components(other)
