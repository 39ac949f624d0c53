"""`acp-conductor show`: the components of a chain file, without its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

HELLO = Path(__file__).parents[2] / "chains" / "hello.yaml"


def test_the_smallest_chain(run):
    result = run("show", HELLO)

    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        f"hello ({HELLO})",
        "  proxy 1: usage",
        "    use: usage",
        "    start_timeout: 30s",
        "    stop_timeout: 5s",
        f"    at: {HELLO}:8:5",
        "  agent: test-agent",
        "    use: test-agent",
        "    start_timeout: 30s",
        "    stop_timeout: 5s",
        f"    at: {HELLO}:10:3",
        "  mcp_bridge: auto",
        "  max_message_bytes: 268435456",
        "  adapt, without a setting: normalize, subagents, cursor_questions, v1_v2: auto",
    ]


def test_nested_chains_are_expanded(run, chain_file, tmp_path):
    inner = chain_file("proxies: [{name: a, run: x}, {name: b, run: y}]\n", "inner.yaml")
    path = chain_file("proxies: [{name: tools, chain: inner.yaml}]\n")

    result = run("show", path)

    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("  proxy")] == [
        "  proxy 1: tools/a",
        "  proxy 2: tools/b",
    ]
    assert f"    at: {inner}:2:11" in lines
    assert "  no agent: a chain of proxies" in lines


def test_secrets_are_not_shown(run, chain_file, tmp_path):
    (tmp_path / "vault.py").write_text(
        "import attrs\n"
        "from conductor.proxy import Proxy\n"
        "@attrs.define\n"
        "class Vault(Proxy):\n"
        "    password: str\n"
        "    url: str\n"
        "    deep: dict\n"
    )
    path = chain_file(
        "proxies:\n"
        "  - run: [prog, --token, hidden1, --api-key=hidden2, '--name=${SECRET}', shown,\n"
        "          ghp_hiddenhiddenhiddenhidden]\n"
        "    env: {A: hidden3, N: null, B: 'x-${SECRET}', C: 'y${UNSET:-z}'}\n"
        "  - use: ./vault.py:Vault\n"
        "    with: {password: hidden4, url: '${SECRET}/', deep: {api_key: hidden5, l: [1, a b]}}\n"
        "  - connect: wss://user:hidden6@host/acp?token=hidden7\n"
    )

    result = run("show", path, env={"SECRET": "hidden8"})

    assert result.returncode == 0
    assert "hidden" not in result.stdout
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "run: prog --token '***' '--api-key=***' '--name=${SECRET}' shown ***" in lines
    assert "env: A=***" in lines
    assert "env: N=null" in lines
    assert "env: B=x-${SECRET}" in lines
    assert "env: C=y${UNSET:-z}" in lines
    assert "with: {password: ***, url: ${SECRET}/, deep: {api_key: ***, l: [1, a b]}}" in lines
    assert "connect: wss://***@host/acp?token=***" in lines


def test_timeouts_and_failures(run, chain_file):
    path = chain_file(
        "proxies:\n"
        "  - run: x\n"
        "    cwd: sub\n"
        "    inherit_env: no\n"
        "    dialect: _proxy\n"
        "    start_timeout: 500ms\n"
        "    stop_timeout: 1m\n"
        "    on_failure: bypass\n"
        "mcp_bridge: off\n"
    )

    lines = [line.strip() for line in run("show", path).stdout.splitlines()]

    assert lines[2:-2] == [
        "run: x",
        "inherit_env: no",
        f"cwd: {path.parent}/sub",
        "dialect: _proxy",
        "start_timeout: 0.5s",
        "stop_timeout: 60s",
        "on_failure: bypass",
        f"at: {path}:3:5",
        "no agent: a chain of proxies",
    ]
    assert lines[-2] == "mcp_bridge: off"


def test_what_a_sandbox_shows(run, chain_file):
    path = chain_file(
        "agent:\n"
        "  run: x\n"
        "  sandbox: {workspaces: {/src: /workspace}, read: [/data], network: no}\n"
        "proxies:\n"
        "  - {run: y, sandbox: true}\n"
    )

    lines = [line.strip() for line in run("show", path).stdout.splitlines()]

    assert "sandbox: workspaces: /src as /workspace; read: /data; network: no" in lines
    assert "sandbox: workspaces: the working directory; network: yes" in lines


@pytest.mark.parametrize("command", ["show {}", "run {}", "prompt {} hi"])
def test_a_file_of_the_working_directory_takes_the_place_of_no_name(run, tmp_path, command):
    """A repository has a file that is called as a chain of the user's."""
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    initialize = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    (tmp_path / "review").write_text("no chain file at all: [")

    named = run(*command.format("review").split(), env=env, input=initialize)
    path = run(*command.format("./review").split(), env=env, input=initialize)

    assert "not valid YAML" not in named.stderr
    assert "the file of this directory is written `./review`" in named.stderr
    assert "not valid YAML" in path.stderr


def test_the_directory_of_named_chains_is_named(run, tmp_path):
    chains = tmp_path / "config" / "acp-conductor" / "chains"
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def said(*words):
        done = run(*words, env=env)
        assert done.returncode == 2
        return done.stderr

    assert f"{chains}/nosuch.yaml: error: there is no chain called" in said("show", "nosuch")
    chains.mkdir(parents=True)
    (chains / "review.yaml").write_text("version: 1\n")
    for words in (["show", "nosuch"], ["prompt", "nosuch", "hi"]):
        assert "the names there: review" in said(*words)
    assert str(chains) not in said("show", "nosuch.yaml")


def test_a_file_with_a_similar_name_is_meant(run, tmp_path):
    (tmp_path / "review.yaml").write_text("version: 1\n")

    def help(name):
        return run("show", tmp_path / name).stderr.splitlines()[1]

    assert help("reveiw.yaml") == f"help: did you mean `{tmp_path}/review.yaml`?"
    assert help("none/review.yaml") == f"help: there is no directory {tmp_path}/none either"
    assert help("other.yaml") == ""


def test_adapters_with_the_condition_of_those_that_are_inserted_if_needed(run, tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text(
        "version: 1\nagent: {use: test-agent}\nadapt:\n  v1_v2: never\n  journal: always\n"
        "  turn_updates: {mode: auto, with: {questions: true}}\n"
    )

    result = run("show", str(path))

    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("  adapt")] == [
        "  adapt: turn_updates: auto {questions: true} (client: version 1, known to lose updates "
        "between turns (CodeCompanion); agent: sends updates between turns)",
        "  adapt: journal: always",
        "  adapt: v1_v2: never",
        "  adapt, without a setting: normalize, subagents, cursor_questions: auto",
    ]


def test_the_adapters_of_a_client(run, chain_file):
    path = chain_file(
        "agent: {use: test-agent}\nproxies: [{use: boolean_options}]\n"
        "adapt: {notices: auto, boolean_options: auto, journal: auto, v1_v2: never, queue: never}\n"
    )

    result = run("show", "--client", "avante", path)

    assert result.returncode == 0
    assert result.stdout.splitlines()[-2:] == [
        "  for avante: notices",
        "  for avante, if the agent needs it: subagents, cursor_questions, journal",
    ]
