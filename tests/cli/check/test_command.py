"""`acp-conductor check`, from the outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cli.conftest import PASS_PROXY

pytestmark = pytest.mark.slow

HELLO = Path(__file__).parents[3] / "chains" / "hello.yaml"


@pytest.mark.fast
def test_a_file_without_mistakes(run):
    result = run("check", HELLO)

    assert result.returncode == 0
    assert result.stdout == f"{HELLO}: ok: 1 proxy, agent test-agent\n"


@pytest.mark.fast
def test_all_mistakes_of_all_files(run, chain_file, tmp_path):
    (tmp_path / "hold.py").write_text(
        "import attrs\n"
        "from conductor.proxy import Proxy\n"
        "@attrs.define\n"
        "class Hold(Proxy):\n"
        "    seconds: int\n"
    )
    first = chain_file("agent: {rnu: x}\n", "first.yaml")
    second = chain_file(
        "proxies:\n  - use: ./hold.py:Hold\n    with: {seconds: many}\nagent: {use: tset-agent}\n",
        "second.yaml",
    )

    result = run("check", first, HELLO, second)

    assert result.returncode == 2
    assert result.stdout == ""
    assert f"{first}:2:9: error: unknown key `rnu`" in result.stderr
    assert f"{second}:4:21: error: " in result.stderr
    assert f"{second}:5:14: error: " in result.stderr
    assert "did you mean 'test-agent'?" in result.stderr
    assert re.search(r"^[34] problems$", result.stderr, re.MULTILINE)


def test_options_of_adapters_are_checked_although_none_is_inserted_yet(run, chain_file):
    path = chain_file(
        "adapt:\n"
        "  journal: {with: {transcrpt: 3}}\n"
        "  local_files: {mode: never, with: {nothing: x}}\n"
        "agent: {use: test-agent}\n"
    )

    result = run("check", path)

    assert result.returncode == 2
    assert f"{path}:3:12: error: unknown option `transcrpt`" in result.stderr
    assert "did you mean `transcript`?" in result.stderr
    assert "1 problem" in result.stderr


def test_a_context_file_that_does_not_exist_is_a_warning(run, chain_file, tmp_path, monkeypatch):
    (tmp_path / "AGENTS.md").write_text("x")
    monkeypatch.chdir(tmp_path)
    path = chain_file(
        "proxies:\n  - use: context\n    with:\n      text: x\n"
        "      files: [AGENTS.md, AGENTZ.md]\nagent: {use: test-agent}\n"
    )

    result = run("check", path)

    assert (result.returncode, result.stdout) == (0, f"{path}: ok: 1 proxy, agent test-agent\n")
    assert result.stderr.splitlines() == [
        f"{path}:6:14: warning: context: `AGENTZ.md` matches no file in {tmp_path}, "
        "or above it in the project; a session looks from its own directory",
        "   |       files: [AGENTS.md, AGENTZ.md]",
        "   |              ^^^^^^^^^^^^^^^^^^^^^^",
        "",
    ]


@pytest.mark.fast
def test_unknown_effects_of_a_placement_are_errors(run, chain_file, tmp_path):
    (tmp_path / "house.py").write_text(
        "import attrs\n"
        "from conductor.proxy import Placement, Proxy\n"
        "@attrs.define\n"
        "class WithOption(Proxy):\n"
        "    placement: str = 'left'\n"
        "class Unknown(Proxy):\n"
        "    def placement(self):\n"
        "        return Placement(effects={'adds_txt'})\n"
    )
    uses = [f"  - use: ./house.py:{name}\n" for name in ("WithOption", "Unknown")]
    path = chain_file(f"proxies:\n{''.join(uses)}agent: {{use: test-agent}}\n")

    result = run("check", path)

    assert result.returncode == 2
    assert f"{path}:4:10: error: placement() failed: ValidationError: " in result.stderr
    assert "'adds_txt'" in result.stderr
    assert result.stderr.endswith("\n1 problem\n")


@pytest.mark.fast
def test_start_shows_what_was_negotiated(run, chain_file):
    path = chain_file(
        "proxies:\n"
        f"  - {{name: first, run: [{sys.executable}, {PASS_PROXY}]}}\n"
        f"  - {{name: second, run: [{sys.executable}, {PASS_PROXY}, --dialect, _proxy]}}\n"
        "agent: {use: test-agent, isolate: true}\n"
    )

    result = run("check", "--start", path)

    unexpected = [line for line in result.stderr.splitlines() if "slow to start" not in line]
    assert (result.returncode, unexpected) == (0, [])
    lines = re.sub(r"\d+ ms", "N ms", result.stdout).splitlines()
    assert [re.split(r"\s{2,}", line.strip()) for line in lines] == [
        [f"{path}: started in N ms"],
        ["component", "kind", "dialect", "start", "capabilities"],
        ["first", "run", "proxy/*", "N ms", "the same"],
        ["second", "run", "_proxy/*", "N ms", "the same"],
        [
            "test-agent",
            "use",
            "agent",
            "N ms",
            "loadSession, prompt (image audio embeddedContext), session (list resume close)",
        ],
        ["protocol version 1, Test agent 0.1.0"],
        ["MCP over ACP: bridged"],
    ]


def test_start_names_inserted_adapters_and_what_is_left_out(run, chain_file):
    command = f"run: [{sys.executable}, {PASS_PROXY}]"
    path = chain_file(
        "proxies:\n"
        f"  - {{name: first, {command}, when: {{env: NOT_SET_ANYWHERE}}}}\n"
        f"  - {{name: second, {command}}}\n"
        "agent: {use: test-agent}\n"
        "adapt: {notices: always, turn_updates: auto, journal: never, local_files: auto}\n"
    )

    result = run("check", "--start", path)

    assert (result.returncode, result.stderr) == (0, "")
    lines = [re.split(r"\s{2,}", line.strip())[:3] for line in result.stdout.splitlines()]
    assert lines[2:4] == [["first", "run", "left out"], ["second", "run", "proxy/*"]]
    assert lines[-3] == ["inserted: adapter:notices"]
    assert lines[-2][0].startswith("inserted if needed: adapter:local_files (client: without `fs.")
    assert lines[-1][0].startswith("inserted if needed: adapter:turn_updates (client: version 1, k")


def test_start_has_the_proxies_of_the_project_that_is_trusted(run, chain_file, tmp_path):
    directory = tmp_path / "project"
    directory.mkdir()
    path = directory / ".acp-conductor.yaml"
    path.write_text("version: 1\nproxies: [{use: context, with: {text: x}}]\n")
    chain = chain_file("proxies: [{use: redact}]\nagent: {use: test-agent}\n")

    def run_there(*arguments):
        env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
        return run(*arguments, cwd=directory, env=env)

    untrusted = run_there("check", "--start", chain)
    run_there("trust", "--yes")
    trusted = run_there("check", "--start", chain)
    alone = run_there("check", "--start", "--no-project", chain)

    assert untrusted.stdout.startswith(f"project: {path} is not trusted yet; ")
    assert "\n  context " in trusted.stdout
    assert "context" not in alone.stdout
    order = f"{path}:2:17: warning: context: it stands after `redact`, nearer to the agent: "
    assert [order in each.stderr for each in (untrusted, trusted, alone)] == [False, True, False]
    assert f"help: add `redact` after `context` in {path}\n" in trusted.stderr


def test_start_tells_which_adapters_a_client_gets(run, chain_file):
    path = chain_file(
        "agent: {use: test-agent}\nadapt: {notices: auto, elicitation: auto}\n"
        "proxies: [{use: boolean_options}]\n"
    )

    result = run("check", "--start", "--client", "zed", path)
    alone = run("check", "--client", "zed", path)

    assert (result.returncode, result.stderr) == (0, "")
    first, *_, inserted, other = result.stdout.splitlines()
    assert first.endswith(" ms for zed")
    assert inserted == "  inserted: adapter:notices"
    assert other.startswith("  not for zed: adapter:elicitation (client: without `elicitation.form")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "--client needs --start" in alone.stderr


def test_a_chain_of_proxies_is_tried_with_the_test_agent(run, chain_file):
    path = chain_file(f"proxies: [{{run: [{sys.executable}, {PASS_PROXY}]}}]\n")

    result = run("check", "--start", path)

    assert result.returncode == 0
    assert "(no agent: tried with test-agent)" in result.stdout


def test_a_chain_that_does_not_start_does_not_stop_the_check(run, chain_file):
    path = chain_file("agent: {name: broken, run: [sh, -c, 'echo the reason >&2; exit 7']}\n")

    result = run("--log", "off", "check", "--start", path, HELLO)

    assert result.returncode == 3
    assert result.stdout.startswith(f"{path}: did not start\n{HELLO}: started in ")
    assert "component 'broken' did not start: it exited with status 7" in result.stderr
    assert "stderr: the reason" in result.stderr
    assert f"in {path}:2:" in result.stderr


PLUGIN = """
import os, subprocess, sys, time
import attrs
from conductor.proxy import Proxy
print("printed by a module")
{more}

@attrs.define
class Mine(Proxy):
    seconds: int = 0
"""
WHAT_ENDS_IT = {
    "sys.exit(5)": "mine.py cannot be imported: SystemExit: 5",
    "os._exit(5)": "importing it ended the process, which exited with status 5",
    "os.kill(os.getpid(), 9)": "importing it ended the process, which was ended by SIGKILL",
    "time.sleep(1000)": "import and construction took longer than 3 s (start_timeout)",
}


@pytest.mark.parametrize("more", WHAT_ENDS_IT)
def test_a_failing_module_is_reported_with_its_location(run, chain_file, tmp_path, more):
    (tmp_path / "mine.py").write_text(PLUGIN.format(more=more))
    (tmp_path / "fine.py").write_text(PLUGIN.format(more=""))
    path = chain_file(
        "proxies:\n"
        "  - {use: './mine.py:Mine', start_timeout: 3s}\n"
        "  - {use: './fine.py:Mine', with: {seconds: many}}\n"
        "agent: {use: test-agent}\n"
    )

    result = run("check", path)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"{path}:3:11: error: " in result.stderr
    assert WHAT_ENDS_IT[more] in result.stderr
    assert f"{path}:4:45: error: seconds: expected a whole number" in result.stderr
    assert result.stderr.endswith("2 problems\n")


def test_processes_started_by_a_module_do_not_outlive_the_check(run, chain_file, tmp_path):
    more = "p = subprocess.Popen(['sleep', '1000'], start_new_session=True); "
    more += f"open('{tmp_path}/pid', 'w').write(str(p.pid))"
    (tmp_path / "mine.py").write_text(PLUGIN.format(more=more))

    result = run("check", chain_file("proxies: [{use: './mine.py:Mine'}]\n"))

    assert (result.returncode, result.stderr) == (0, "printed by a module\n")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_named_pipe_is_refused_as_a_chain_file(run, chain_file, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    path = chain_file("proxies:\n  - chain: ./fifo\n  - chain: /dev/zero\nagent: {run: x}\n")

    nested, first = run("check", path), run("check", tmp_path / "fifo")

    assert (nested.returncode, first.returncode) == (2, 2)
    assert (
        f"{path}:3:12: error: the file cannot be read: it is a named pipe, not a regular file"
        in nested.stderr
    )
    assert f"{path}:4:12: error: the file cannot be read: it is a device" in nested.stderr
    assert (
        "fifo: error: the file cannot be read: it is a named pipe, not a regular file"
        in first.stderr
    )


def test_a_chain_may_come_from_a_program(tmp_path):
    command = f"{sys.executable} -m conductor check <(cat {HELLO})"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=30, cwd=tmp_path
    )

    assert result.stderr == ""
    assert "ok: 1 proxy, agent test-agent" in result.stdout


def test_serve_checks_plugins_before_it_listens(run, chain_file, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN.format(more=""))
    path = chain_file(
        "proxies: [{use: './mine.py:Mine', with: {seconds: x}}]\nagent: {use: test-agent}\n"
    )

    result = run("serve", path, "--listen", "127.0.0.1:0")

    assert result.returncode == 2
    assert "error: seconds: expected a whole number" in result.stderr


def test_the_path_that_was_searched_is_named_once(run, chain_file):
    path = chain_file("proxies: [{run: no-such-proxy}]\nagent: {run: no-such-program}\n")

    result = run("check", "--start", path, env={"PATH": "/nowhere"})

    assert (result.stdout + result.stderr).count("PATH is /nowhere") == 1


def test_a_mistake_in_one_component_hides_none_in_others(run, chain_file, tmp_path):
    """Neither in the same file nor in one that nests it."""
    inner = chain_file("proxies:\n  - use: usge\nagent:\n  run: [x]\n  colour: red\n", "inner.yaml")
    path = chain_file(
        "proxies:\n  - use: contxt\n  - use: context\n    with: {fils: [a]}\n"
        "  - rnu: [x]\n  - run: [not-there-at-all]\n  - use: ./none.py:None\n"
        "agent: {chain: ./inner.yaml}\n"
    )

    result = run("check", path)

    shown = re.findall(r"(\w+)\.yaml:(\d+):\d+: (\w+)", result.stderr)
    assert sorted(shown) == [
        *[("chain", str(line), "error") for line in (3, 5, 6)],
        ("chain", "7", "warning"),
        ("chain", "8", "error"),
        ("inner", "3", "error"),
        ("inner", "6", "error"),
    ], result.stderr
    assert str(inner) in result.stderr


def test_a_plugin_in_the_place_of_another_kind(run, chain_file):
    chain_file("agent: {use: usage}\n", "inner.yaml")
    path = chain_file("proxies:\n  - {use: test-agent}\nagent: {chain: ./inner.yaml}\n")

    result = run("check", path)

    assert result.returncode == 2
    assert "chain.yaml:3:11: error: test-agent is an agent and cannot be a proxy" in result.stderr
    assert "inner.yaml:2:14: error: usage is a proxy and cannot be the agent" in result.stderr
    assert "write it below `proxies:`" in result.stderr


def test_a_missing_program_is_a_warning(run, chain_file, tmp_path):
    (tmp_path / "bin").mkdir()
    there = tmp_path / "bin" / "there"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    (tmp_path / "no-mode").touch()
    path = chain_file(
        "proxies:\n"
        f"  - {{run: there, env: {{PATH: {tmp_path}/bin}}}}\n"
        "  - run: ./bin/there\n"
        "  - run: ./absent\n"
        "  - run: ./no-mode\n"
        "  - {run: there, cwd: ./nowhere}\n"
        "agent: {ssh: host, run: not-here}\n"
    )

    result = run("check", path)

    assert result.returncode == 0
    assert result.stdout.endswith(": ok: 5 proxies, agent not-here\n")
    places = [line.split(": ")[0] for line in result.stderr.splitlines() if "warning" in line]
    assert places == [f"{path}:{line}:{column}" for line, column in ((5, 10), (6, 10), (7, 23))]
    assert "no such file: " in result.stderr
    assert "not executable: " in result.stderr
    assert "its working directory does not exist" in result.stderr


def test_a_sandbox_that_cannot_be_made_is_a_warning(run, chain_file, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bwrap").chmod(0o755)
    path = chain_file("agent:\n  run: /bin/sh\n  sandbox: {workspaces: [./nowhere]}\n")

    found = run("check", path, env={"PATH": str(tmp_path)})
    missing = run("check", path, env={"PATH": "/nowhere"})

    assert (found.returncode, missing.returncode) == (0, 0)
    assert f"{path}:4:3: warning: sh: the workspace of its sandbox does not exist" in found.stderr
    assert "install the package `bubblewrap`" in missing.stderr


def test_a_project_file_that_is_not_trusted_imports_no_plugin(run, tmp_path):
    plugin = tmp_path / "plug.py"
    plugin.write_text(
        "from conductor.proxy import Proxy\nopen('imported', 'w')\nclass Plug(Proxy): pass\n"
    )
    file = tmp_path / ".acp-conductor.yaml"
    file.write_text("version: 1\nproxies: [{use: './plug.py:Plug'}]\n")
    env = {"HOME": "/", "XDG_STATE_HOME": str(tmp_path / "state")}

    checked = run("check", file, env=env)
    started = run("check", "--start", file, env=env)
    others = [run(*words, env=env) for words in (["doctor", file], ["serve", file])]

    assert not (tmp_path / "imported").exists()
    assert checked.returncode == 0
    assert "warning: its plugins are not imported: the file is not trusted yet" in checked.stderr
    assert started.returncode == 2
    assert "error: its plugins are not imported" in started.stderr
    for other in others:
        assert other.returncode == 2
        assert "the file is not trusted yet" in other.stderr

    assert run("check", "--trust-plugins", file, env=env).returncode == 0
    (tmp_path / "imported").unlink()
    assert run("trust", "--yes", file, env=env).returncode == 0
    assert run("check", file, env=env).returncode == 0
    assert (tmp_path / "imported").exists()
