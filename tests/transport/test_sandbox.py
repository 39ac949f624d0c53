"""The command line of `bwrap`; what it does is tested in `processes/test_sandbox.py`."""

from __future__ import annotations

import os

import pytest

from conductor.chainfile.model import ComponentSpec, Sandbox
from conductor.transport.local_command import local_command
from conductor.transport.sandbox import workspaces
from conductor.transport.spawn import SpawnError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A home directory, a workspace and a `bwrap` that is never run."""
    for directory in ("bin", "home/.ssh", "home/.config/gh", "home/app/src", "data"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("home/.netrc", "home/app/.env", "home/app/.env.local", "home/app/agent"):
        (tmp_path / file).write_text("")
    for program in ("bin/bwrap", "home/app/agent"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.chdir(tmp_path / "home/app")
    return tmp_path


def command(machine, sandbox=None, *, run=("true", "--flag"), environ=None, **members):
    """The arguments of `bwrap`, and the environment."""
    environ = environ or {}
    path = os.pathsep.join([str(machine / "bin"), os.environ.get("PATH", os.defpath)])
    spec = ComponentSpec("agent", run=run, sandbox=sandbox or Sandbox(), **members)
    argv, env, cwd = local_command(spec, {"PATH": path, "HOME": str(machine / "home"), **environ})
    assert cwd is None
    return list(argv), env


def mounts(machine, argv):
    """Options of `bwrap` that name files of the machine, in their order."""
    found = []
    for index, word in enumerate(argv):
        if word in ("--bind", "--ro-bind") and str(machine) in argv[index + 2]:
            found.append((word, *argv[index + 1 : index + 3]))
        if word == "--tmpfs" and str(machine) in argv[index + 1]:
            found.append((word, argv[index + 1]))
    return [tuple(word.replace(str(machine), "") for word in each) for each in found]


def test_a_component_without_a_sandbox_starts_as_it_is():
    spec = ComponentSpec("agent", run=("true",), env={"A": "1"}, cwd="/tmp")

    assert local_command(spec, {"B": "2"}) == (("true",), {"A": "1", "B": "2"}, "/tmp")


def test_the_program_is_isolated_in_every_way_and_sees_the_working_directory(machine):
    argv, _ = command(machine)

    assert argv[0] == str(machine / "bin/bwrap")
    options = {"--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session"}
    assert options < set(argv)
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert "--unshare-net" not in argv
    assert mounts(machine, argv) == [
        ("--tmpfs", "/home"),
        ("--bind", "/home/app", "/home/app"),
    ]
    end = argv.index("--chdir")
    assert argv[end - 2 : end] == ["--remount-ro", "/"]
    assert argv[end + 1 : end + 3] == [str(machine / "home/app"), "--"]
    assert argv[-1] == "--flag"
    assert os.path.basename(argv[-2]) == "true"


def test_a_workspace_may_have_another_path_inside(machine):
    app = str(machine / "home/app")
    argv, _ = command(
        machine, Sandbox(workspaces={app: "/workspace"}), run=(f"{app}/agent",), cwd=f"{app}/src"
    )

    index = argv.index("--chdir")
    assert argv[index:] == ["--chdir", "/workspace/src", "--", "/workspace/agent"]
    assert [app, "/workspace"] == argv[argv.index("--bind") + 1 :][:2]


def test_secrets_stay_hidden_in_a_visible_home_unless_they_are_named(machine):
    home = str(machine / "home")
    argv, _ = command(machine, Sandbox(read=(home,), write=(f"{home}/.config/gh",)))

    assert mounts(machine, argv) == [
        ("--tmpfs", "/home"),
        ("--ro-bind", "/home", "/home"),
        ("--ro-bind", "/dev/null", "/home/.netrc"),
        ("--tmpfs", "/home/.ssh"),
        ("--bind", "/home/app", "/home/app"),
        ("--bind", "/home/.config/gh", "/home/.config/gh"),
    ]


def test_a_visible_file_in_a_hidden_directory_is_mounted_after_it(machine):
    home = str(machine / "home")
    (machine / "home/.config/gh/hosts.yml").write_text("")
    argv, _ = command(machine, Sandbox(read=(home, f"{home}/.config/gh/hosts.yml")))

    order = [each[-1] for each in mounts(machine, argv)]
    assert order.index("/home/.config/gh") < order.index("/home/.config/gh/hosts.yml")


def test_hidden_patterns_are_relative_to_each_workspace(machine):
    app, data = str(machine / "home/app"), str(machine / "data")
    (machine / "data/.env").write_text("")
    workspaces = {app: "/workspace", data: data}
    argv, _ = command(machine, Sandbox(workspaces=workspaces, hide=(".env*", f"{data}/missing")))

    empty = [argv[i + 2] for i, word in enumerate(argv[:-2]) if argv[i + 1] == "/dev/null"]
    found = [path for path in empty if not path.startswith("/etc/")]
    assert found == ["/workspace/.env", "/workspace/.env.local", f"{data}/.env"]


def test_a_hidden_link_hides_what_it_names(machine):
    (machine / "home/app/link").symlink_to("src")
    argv, _ = command(machine, Sandbox(hide=("link",)))

    assert ("--tmpfs", "/home/app/src") in mounts(machine, argv)


def test_what_is_hidden_stays_so_if_it_is_protected(machine):
    app = machine / "home/app"
    (app / "src/key").write_text("")
    protect = (str(app / ".env"), str(app / "src/key"))

    argv, _ = command(machine, Sandbox(hide=(".env", "src"), protect=protect))

    assert [each[-2:] for each in mounts(machine, argv) if each[-1].startswith("/home/app/")] == [
        ("/dev/null", "/home/app/.env"),
        ("--tmpfs", "/home/app/src"),
    ]


def test_what_another_sandbox_shows_cannot_be_replaced(machine):
    app = machine / "home/app"
    (app / "src/a/b").mkdir(parents=True)

    argv, _ = command(machine, Sandbox(workspaces={str(app): "/w"}, keep=(str(app / "src/a"),)))

    found = [argv[index : index + 3] for index, word in enumerate(argv) if word == "--bind"]
    assert [each[2] for each in found] == ["/w", "/w/src", "/w/src/a"]


def test_what_is_protected_is_read_only_and_can_be_replaced_with_no_directory_around_it(machine):
    app = machine / "home/app"
    (app / "src/a/b").mkdir(parents=True)
    (app / "src/a/b/p.py").write_text("")
    protect = (str(app / "agent"), str(app / "src/a/b"), str(app / "src/a/b/p.py"))

    argv, _ = command(machine, Sandbox(workspaces={str(app): "/w"}, protect=protect))

    found = [argv[index : index + 3] for index, word in enumerate(argv) if word.endswith("bind")]
    inside = [tuple(each) for each in found if each[2].split("/")[1] == "w"]
    assert inside == [
        ("--bind", str(app), "/w"),
        ("--ro-bind", str(app / "agent"), "/w/agent"),
        ("--bind", str(app / "src"), "/w/src"),
        ("--bind", str(app / "src/a"), "/w/src/a"),
        ("--ro-bind", str(app / "src/a/b"), "/w/src/a/b"),
        ("--ro-bind", str(app / "src/a/b/p.py"), "/w/src/a/b/p.py"),
    ]


def test_a_link_to_a_workspace_stands_for_it(machine):
    link = str(machine / "link")
    os.symlink(machine / "data", link)
    spec = ComponentSpec("agent", run=("x",), sandbox=Sandbox(workspaces={link: link}))

    assert workspaces(spec, {}) == {link: link, str(machine / "data"): link}


@pytest.mark.parametrize("cwd", ["/", "{home}", "{machine}"])
def test_the_home_directory_is_no_default_workspace(machine, cwd):
    cwd = cwd.format(home=machine / "home", machine=machine)

    with pytest.raises(SpawnError, match="name the directories that it may write to"):
        command(machine, cwd=cwd)


@pytest.mark.parametrize(
    ("sandbox", "members", "message"),
    [
        ({"workspaces": {"/nowhere": "/nowhere"}}, {}, "does not exist: /nowhere"),
        ({"write": ("/nowhere",)}, {}, "`write` .* does not exist: /nowhere"),
        ({"workspaces": {"/": "/"}}, {}, "cannot show /"),
        ({"read": ("/",)}, {}, "cannot show /"),
        ({"read": ("/proc/1",)}, {}, "cannot show /proc/1"),
        ({}, {"run": ("no-such-program",)}, "command not found: no-such-program"),
        ({}, {"run": ("/no/such/program",)}, "no such file: /no/such/program"),
        ({}, {"run": ("bwrap",)}, "does not show the program .*/bin/bwrap: add"),
        ({"workspaces": {"/usr": "/usr"}}, {"cwd": "/home"}, "does not show its `cwd`, /home"),
    ],
)
def test_what_cannot_work_is_a_readable_error(machine, sandbox, members, message):
    with pytest.raises(SpawnError, match=message):
        command(machine, Sandbox(**sandbox), **members)
