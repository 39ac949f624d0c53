"""`acp-conductor check`, from the outside."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .conftest import PASS_PROXY

HELLO = Path(__file__).parents[2] / "chains" / "hello.yaml"


def test_a_file_without_mistakes(run):
    result = run("check", HELLO)

    assert result.returncode == 0
    assert result.stdout == f"{HELLO}: ok: 1 proxy, agent test-agent\n"


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
        f"{path}:6:14: warning: context: `AGENTZ.md` matches no file in {tmp_path}; "
        "a session looks in its own directory",
        "   |       files: [AGENTS.md, AGENTZ.md]",
        "   |              ^^^^^^^^^^^^^^^^^^^^^^",
        "",
    ]


def test_start_shows_what_was_negotiated(run, chain_file):
    path = chain_file(
        "proxies:\n"
        f"  - {{name: first, run: [{sys.executable}, {PASS_PROXY}]}}\n"
        f"  - {{name: second, run: [{sys.executable}, {PASS_PROXY}, --dialect, _proxy]}}\n"
        "agent: {use: test-agent, isolate: true}\n"
    )

    result = run("check", "--start", path)

    assert (result.returncode, result.stderr) == (0, "")
    lines = re.sub(r"\d+ ms", "N ms", result.stdout).splitlines()
    assert [re.split(r"\s{2,}", line.strip()) for line in lines] == [
        [f"{path}: started in N ms"],
        ["component", "kind", "dialect", "start", "says that it can"],
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


def test_a_chain_of_proxies_is_tried_with_the_test_agent(run, chain_file):
    path = chain_file(f"proxies: [{{run: [{sys.executable}, {PASS_PROXY}]}}]\n")

    result = run("check", "--start", path)

    assert result.returncode == 0
    assert "(no agent of its own: tried with test-agent)" in result.stdout


def test_one_that_does_not_start_does_not_keep_the_others_from_it(run, chain_file):
    path = chain_file("agent: {name: broken, run: [sh, -c, 'echo the reason >&2; exit 7']}\n")

    result = run("--log", "off", "check", "--start", path, HELLO)

    assert result.returncode == 3
    assert result.stdout.startswith(f"{path}: did not start\n{HELLO}: started in ")
    assert "component 'broken' did not start: it exited with status 7" in result.stderr
    assert "stderr: the reason" in result.stderr
    assert f"in {path}:2:" in result.stderr
