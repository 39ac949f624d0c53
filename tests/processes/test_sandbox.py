"""An agent in its sandbox: what it can see and do, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from cli.test_agent_login import terminal_login
from support.external_programs import program
from support.peers.process import COMPONENTS, ROOT, running_below

pytestmark = pytest.mark.external

PYTHON = os.path.realpath(sys.executable)
VISIBLE = [os.path.realpath(sys.base_prefix), str(ROOT / "tests" / "support")]


@pytest.fixture(scope="module", autouse=True)
def bubblewrap():
    """Skip where the kernel allows no sandbox, as in a container without user namespaces."""
    tried = subprocess.run(
        [program("bwrap"), "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        pytest.skip(f"bubblewrap cannot make a sandbox here: {tried.stderr.strip()}")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory with a secret, and a workspace `app` in it."""
    home = tmp_path / "home"
    for file in (".ssh/id", ".netrc", "notes", "app/.env", "app/main.py"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def sandboxed(home, start_file):
    """Start an agent in a sandbox with these settings; its workspace is `app`."""

    def sandboxed(*arguments, keys=None, **sandbox):
        run = [PYTHON, "-S", "-E", str(COMPONENTS / "probe_agent.py"), *map(str, arguments)]
        sandbox = {"workspaces": [str(home / "app")], **sandbox}
        sandbox["read"] = [*VISIBLE, *sandbox.get("read", [])]
        return start_file({"run": run, "sandbox": sandbox, **(keys or {})})

    return sandboxed


def open_session(editor, cwd):
    """Initialize, and open a session in a directory."""
    assert "result" in editor.initialize()
    answer = editor.answer(editor.request("session/new", cwd=str(cwd), mcpServers=[]))
    assert "result" in answer, answer
    return answer


@pytest.fixture
def ask(sandboxed, home):
    """Ask a new agent for the value of Python expressions."""

    def ask(*codes, **sandbox):
        editor = sandboxed(**sandbox)
        open_session(editor, home / "app")
        found = [editor.ask(f"eval {code}") for code in codes]
        assert editor.leave() == 0
        return found

    return ask


def test_home_and_secrets_are_hidden_and_the_workspace_is_not(ask, home):
    read = "Path({!r}).read_text()"
    paths = [home / ".ssh/id", home / "notes", "/etc/shadow", home / "app/main.py"]

    found = ask(*[read.format(str(path)) for path in paths], "os.listdir(os.environ['HOME'])")

    assert found == [
        "FileNotFoundError",
        "FileNotFoundError",
        "PermissionError",
        "secret",
        "['app']",
    ]


def test_secrets_stay_hidden_in_a_visible_home(ask, home):
    found = ask(
        f"Path('{home}/notes').read_text()",
        f"os.listdir('{home}/.ssh')",
        f"Path('{home}/.netrc').read_text()",
        f"Path('{home}/app/.env').read_text()",
        read=[str(home)],
        hide=[".env"],
    )

    assert found == ["secret", "[]", "PermissionError", "PermissionError"]


def test_only_the_workspace_can_be_written_to(ask, home):
    outside = home.parent / "outside"
    found = ask(
        f"Path('{home}/app/new').write_text('new')",
        "Path('/usr/x').write_text('x')",
        "Path('/x').write_text('x')",
        "Path('/proc/sys/kernel/domainname').write_text('x')",
        f"Path('{outside}').write_text('mine')",
        f"Path('{home}/notes').write_text('mine')",
    )

    assert (home / "app/new").read_text() == "new"
    assert not outside.exists()
    assert (home / "notes").read_text() == "secret"
    assert found[1:4] == 3 * ["OSError"]  # read-only
    assert found[4:] == ["4", "4"]  # its own /tmp and home, which end with it


def test_what_the_conductor_runs_outside_is_read_only_inside(home, start_file):
    """Nor can a directory above it be moved away, and made anew."""
    (home / "app/in/guards").mkdir(parents=True)
    (home / "app/in/guards/p.py").write_text(TOOLS)
    run = [PYTHON, "-S", "-E", str(COMPONENTS / "probe_agent.py")]
    workspaces = [str(home / "app"), str(home.parent)]
    editor = start_file(
        {"run": run, "sandbox": {"workspaces": workspaces, "read": VISIBLE}},
        {"use": f"{home}/app/in/guards/p.py:Tools"},
    )
    open_session(editor, home / "app")
    guards, chain = home / "app/in/guards", home.parent / "chain.yaml"
    assert chain.exists()

    for code in (
        f"Path('{guards}/p.py').write_text('')",
        f"Path('{guards}/p.py').unlink()",
        f"Path('{guards}/yaml.py').write_text('')",
        f"Path('{guards}').rename('{home}/app/in/other')",
        f"Path('{guards.parent}').rename('{home}/app/other')",
        f"Path('{chain}').write_text('')",
        f"os.replace('{home}/app/main.py', '{chain}')",
    ):
        assert editor.ask(f"eval {code}") == "OSError", code
    assert editor.ask(f"eval Path('{home}/app/in/new').write_text('new')") == "3"
    assert editor.leave() == 0


def test_a_server_on_the_loopback_is_reached_only_with_the_network(ask):
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"socket.create_connection({server.getsockname()!r}).close()"

        assert ask(connect, network=False) == ["ConnectionRefusedError"]
        assert ask(connect, network=True) == ["None"]


def test_it_sees_its_own_processes_and_has_no_capabilities(ask):
    numbers = "sorted(int(name) for name in os.listdir('/proc') if name.isdigit())"
    status = "[line.split()[1] for line in open('/proc/self/status') if 'Cap' in line]"

    processes, capabilities, tty = ask(numbers, status, "open('/dev/tty')")

    assert processes == "[1, 2]"
    assert set(eval(capabilities)) == {16 * "0"}
    assert tty == "OSError"


def test_variables_are_inherited_by_an_allow_list(sandboxed, home, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no")
    monkeypatch.setenv("MODEL_KEY", "yes")
    editor = sandboxed(pass_env=["MODEL_*"], keys={"env": {"MODE": "fast"}})
    open_session(editor, home / "app")

    names = ("AWS_SECRET_ACCESS_KEY", "MODEL_KEY", "MODE", "HOME")
    assert [editor.ask(f"env {name}") for name in names] == ["unset", "yes", "fast", str(home)]
    assert editor.leave() == 0


def test_a_session_outside_of_the_sandbox_is_refused_before_the_agent_sees_it(sandboxed, home):
    editor = sandboxed()
    editor.initialize()

    refused = editor.answer(editor.request("session/new", cwd=str(home), mcpServers=[]))
    assert refused["error"]["code"] == -32602
    assert f"does not show {home}" in refused["error"]["message"]
    assert "chain.yaml:" in refused["error"]["message"]
    editor.answer(editor.request("session/new", cwd=str(home / "app"), mcpServers=[]))
    assert editor.ask("seen session/new") == "1"
    assert editor.leave() == 0


def test_files_of_the_client_are_no_way_out(sandboxed, home):
    editor = sandboxed()
    open_session(editor, home / "app")

    editor.answer(editor.prompt(f"read {home}/.ssh/id"))

    assert not any(each.get("method") == "fs/read_text_file" for each in editor.others)
    assert editor.leave() == 0


def test_a_workspace_at_another_path(sandboxed, home):
    editor = sandboxed(workspaces={str(home / "app"): "/workspace"})
    open_session(editor, home / "app")

    assert editor.ask("cwd") == "/workspace"
    assert editor.ask("eval Path('/workspace/new').write_text('new')") == "3"
    assert editor.ask(f"eval os.listdir('{home}')") == "[]"
    assert (home / "app/new").read_text() == "new"
    assert editor.leave() == 0


TOOLS = """
from conductor.proxy import Proxy, tool

class Tools(Proxy):
    @tool
    async def where(self) -> str:
        'Tell that the tool runs.'
        return "outside"
"""


@pytest.mark.parametrize("workspace", ["app", "/workspace"])
def test_tools_of_proxies_reach_an_agent_in_the_sandbox(start_file, home, workspace):
    (home.parent / "tools.py").write_text(TOOLS)
    site = os.path.dirname(os.path.dirname(pytest.__file__))
    agent = {
        "run": [PYTHON, "-m", "conductor.testing.agent"],
        "env": {"PYTHONPATH": f"{ROOT}:{site}"},
        "sandbox": {
            "workspaces": {str(home / "app"): str(home / workspace)},
            "read": [str(ROOT), site, *VISIBLE],
        },
    }
    editor = start_file(agent, {"use": "./tools.py:Tools"})
    answer = open_session(editor, home / "app")

    editor.answer(editor.prompt("call Tools where", answer["result"]["sessionId"]))

    assert "outside" in "".join(map(str, editor.others))
    assert editor.leave() == 0


def test_tools_of_proxies_do_not_reach_an_agent_without_network_and_the_log_says_so(
    start_file, home
):
    (home.parent / "tools.py").write_text(TOOLS)
    agent = {
        "run": [PYTHON, "-S", "-E", str(COMPONENTS / "probe_agent.py")],
        "sandbox": {"workspaces": [str(home / "app")], "read": VISIBLE, "network": False},
    }
    editor = start_file(agent, {"use": "./tools.py:Tools"})
    open_session(editor, home / "app")

    assert "server=Tools" in editor.wait_log("its sandbox has no network")
    assert editor.leave() == 0


@pytest.mark.parametrize("network", [True, False])
def test_the_shim_can_be_started_inside_with_the_network(start_file, home, network):
    system_python = "/usr/bin/python3"
    if not os.path.exists(system_python):
        pytest.skip(f"needs {system_python}, which is not part of the conductor's Python")
    shim = ROOT / "bridges" / "shim.py"
    agent = {
        "run": [system_python, "-S", "-E", str(COMPONENTS / "probe_agent.py")],
        "sandbox": {
            "workspaces": [str(home / "app")],
            "read": [str(ROOT / "tests" / "support")],
            "network": network,
        },
    }
    editor = start_file(agent)
    open_session(editor, home / "app")
    command = [PYTHON, "-I", "-S", str(shim)]

    started = editor.ask(f"eval subprocess.run({command}, stderr=-1).stderr.decode()")

    assert ("started by an agent" in started) is network  # its error without an address
    assert editor.leave() == 0


def test_a_program_in_the_hidden_home_is_explained(start_file, home):
    program = home / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    editor = start_file({"run": [str(program)], "sandbox": {"workspaces": [str(home / "app")]}})

    error = editor.initialize()["error"]

    assert f"does not show the program {program}" in error["message"]
    assert "`read` of `sandbox`" in error["message"]


def test_without_bubblewrap_the_agent_does_not_start(start_file, home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    editor = start_file({"run": ["/bin/sh"], "sandbox": {"workspaces": [str(home / "app")]}})

    error = editor.initialize()["error"]

    assert "install the package `bubblewrap`" in error["message"]


def test_the_home_directory_is_not_shared_by_mistake(start_file, home):
    editor = start_file({"run": ["/bin/sh"], "sandbox": True, "cwd": str(home)})

    error = editor.initialize()["error"]

    assert "name the directories that it may write to" in error["message"]


def test_sigterm_reaches_the_program_which_can_end_in_order(sandboxed, home):
    file = home / "app/ended"
    editor = sandboxed("--on-term", file)
    open_session(editor, home / "app")

    assert editor.leave() == 0
    assert file.read_text() == "terminated"


def test_a_program_that_ignores_sigterm_is_killed_with_all_its_descendants(sandboxed, home):
    editor = sandboxed("--stubborn")
    open_session(editor, home / "app")
    detached = "subprocess.Popen(['sleep', '1000'], start_new_session=True).pid"
    assert editor.ask(f"eval {detached}").isdigit()
    (sleeping,) = [each for each in running_below() if each.name() == "sleep"]

    assert editor.leave() == 0
    assert not sleeping.is_running()


def test_a_killed_conductor_leaves_no_sandbox(sandboxed, home):
    editor = sandboxed("--stubborn")
    open_session(editor, home / "app")
    sandboxed = [each for each in running_below() if each.name().startswith(("bwrap", "python"))]

    editor.signal(signal.SIGKILL)
    editor.process.wait()
    _, left = psutil.wait_procs(sandboxed, 30)

    assert [each for each in left if each.status() != psutil.STATUS_ZOMBIE] == []


def test_an_agent_that_dies_is_started_again_in_a_sandbox(sandboxed, home):
    editor = sandboxed()
    open_session(editor, home / "app")
    editor.answer(editor.prompt("die 3"))

    answer = editor.answer(editor.request("session/new", cwd=str(home / "app"), mcpServers=[]))
    session = answer["result"]["sessionId"]
    block = {"type": "text", "text": f"eval os.path.exists('{home}/notes')"}
    editor.others.clear()
    editor.answer(editor.request("session/prompt", sessionId=session, prompt=[block]))
    texts = [
        each["params"]["update"]["content"]["text"]
        for each in editor.others
        if each.get("method") == "session/update" and "content" in each["params"]["update"]
    ]
    assert "False" in texts
    assert editor.leave() == 0


def test_a_signal_that_ended_the_program_is_named(sandboxed, home):
    editor = sandboxed()
    open_session(editor, home / "app")

    answer = editor.answer(editor.prompt("eval os.kill(os.getpid(), 9)"))

    assert "was ended by SIGKILL" in answer["error"]["message"]


def test_a_login_in_a_terminal_runs_inside(home, tmp_path):
    """It has the terminal, and sees no more than the agent: not the home directory."""
    script = tmp_path / "agent" / "agent.py"
    script.parent.mkdir()
    login = (COMPONENTS / "login_agent.py").read_text()
    look = "print('notes', os.path.exists(os.environ['HOME'] + '/notes'))\n"
    script.write_text(f"import os, sys\nif '--login' in sys.argv:\n    {look}{login}")
    sandbox = {"workspaces": [str(home / "app")], "read": [*VISIBLE, str(script.parent)]}
    agent = {"run": [PYTHON, "-S", "-E", str(script), "--acp", "plain"], "sandbox": sandbox}
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\nagent: {json.dumps(agent)}\n")
    shell = terminal_login(path, tmp_path)

    assert shell.exit_code() == 7
    assert "['--acp', 'plain', '--login'] True None " in shell.seen
    assert "notes False\n" in shell.seen
