"""What `doctor` says of Python, PATH and programs."""

from __future__ import annotations

import pytest

from conductor.cli.doctor.machine import Machine, gather_machine, machine_findings

GOOD = Machine(
    python=(3, 12, 1),
    executable="/venv/bin/python",
    path=("/usr/bin",),
    command="/venv/bin/acp-conductor",
    launchers={"node": ("/usr/bin/node", "v22.1.0"), "npx": None, "uvx": None},
)


def problems(machine, *needed):
    found = machine_findings(machine, needed)
    return [(each.severity, each.message) for each in found if each.severity != "ok"]


def test_nothing_is_wrong():
    assert problems(GOOD, "node") == []
    told = [each.message for each in machine_findings(GOOD, ())]
    assert "node v22.1.0, /usr/bin/node" in told


def test_a_launcher_is_missing_only_if_the_chain_needs_it():
    assert problems(GOOD, "npx") == [("error", "npx is not in PATH; the chain needs it")]


def test_what_is_wrong_with_python_and_path():
    machine = Machine(
        python=(3, 9, 0),
        executable="python",
        path=("bin", "", "/open"),
        writable_by_others=frozenset({"/open"}),
    )

    assert problems(machine) == [
        ("error", "Python 3.9.0 is too old"),
        ("warning", "acp-conductor is not in PATH"),
        ("warning", "PATH has the relative directory bin"),
        ("warning", "PATH has an empty entry, which is the working directory"),
        ("warning", "every user of this machine can put programs into /open of PATH"),
    ]


def test_facts_are_gathered(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\n[ -e other ] || echo v99.0.1\n")
    (tmp_path / "other").touch()  # launchers read configuration of the working directory
    monkeypatch.chdir(tmp_path)
    node.chmod(0o755)

    machine = gather_machine({"PATH": f"{tmp_path}:/no/such/directory"})

    assert machine.launchers == {"node": (str(node), "v99.0.1"), "npx": None, "uvx": None}
    assert machine.writable_by_others == {str(tmp_path)}
    assert machine.missing == {"/no/such/directory"}
    assert machine.command is None


@pytest.mark.parametrize(
    ("environ", "leaked"),
    [
        ({"FLATPAK_ID": "dev.zed.Zed", "LD_LIBRARY_PATH": "/app/lib"}, {"LD_LIBRARY_PATH"}),
        ({"LD_PRELOAD": "/usr/lib/a.so /snap/code/1/b.so", "SNAP": "/snap/code/1"}, {"LD_PRELOAD"}),
        ({"PYTHONHOME": "/tmp/.mount_Editorx1/usr", "PYTHONPATH": "src"}, {"PYTHONHOME"}),
        ({"APPDIR": "/opt/x", "PYTHONPATH": "/srv:/opt/x/lib"}, {"PYTHONPATH"}),
        ({"LD_LIBRARY_PATH": "/app/lib:/usr/local/cuda/lib64"}, set()),  # a container of the user
        ({"FLATPAK_ID": "dev.zed.Zed", "LD_LIBRARY_PATH": ""}, set()),
    ],
)
def test_variables_of_the_package_of_the_editor_are_a_warning(environ, leaked):
    machine = gather_machine({"PATH": "/no/such/directory", **environ})

    found = [each for each in machine_findings(machine, ()) if each.check == "environment"]
    assert {each.message.partition("=")[0] for each in found} == leaked
    assert all(f"env: {{{name}: null}}" in found[0].help for name in leaked)
