"""`acp-conductor wrap`: a chain in front of an agent's command."""

from __future__ import annotations

import json
import sys

import pytest
from support.raw_json import compact

from cli.conftest import AGENT
from conductor.chainfile import structure_options
from conductor.cli.wrap import chain_of_uses, load_wrapped_chain, warn_of_mistakes
from proxies.context import PromptContext

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
INPUT = compact(INITIALIZE) + "\n"


def result(done):
    return json.loads(done.stdout.splitlines()[0])["result"]


@pytest.mark.slow
def test_the_proxies_of_a_chain_file_are_before_the_command(run, chain_file):
    path = chain_file("proxies: [{use: usage}]\nagent: {run: no-such-agent}\n")

    done = run("wrap", "--chain", path, "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "test-agent"
    assert result(done)["_meta"]["acp-conductor/handled"] == ["usage"]
    assert done.returncode == 0


@pytest.mark.slow
def test_arguments_and_environment_reach_the_agent(run, tmp_path):
    script = "import json, os, sys; json.dump([sys.argv[1:], os.environ['KEY']], open('seen', 'w'))"

    run(
        *("wrap", "--use", "usage", "--", sys.executable, "-c", script, "--acp", "--use", "x"),
        input=INPUT,
        env={"KEY": "k-1"},
    )

    assert json.loads((tmp_path / "seen").read_text()) == [["--acp", "--use", "x"], "k-1"]


@pytest.mark.slow
def test_a_wrong_chain_file_is_explained_and_read_again(run, chain_file):
    path = chain_file("proxies: [{use: usage, start_timeout: nonsense}]\n")

    done = run("wrap", "--chain", path, "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "acp-conductor"
    assert "found `nonsense`" in done.stderr
    assert done.returncode == 2


@pytest.mark.slow
def test_a_wrong_option_of_a_proxy_is_explained_with_its_place(run):
    done = run("wrap", "--use", "context:{fles: [a]}", "--", *AGENT.split(), input=INPUT)

    assert result(done)["agentInfo"]["name"] == "acp-conductor"
    assert "--use context:1:2: error: context: unknown option `fles`" in done.stderr


def test_the_command_replaces_the_agent_of_the_file(chain_file):
    path = chain_file("name: review\nproxies: [{use: usage}]\nagent: {run: [old, --acp]}\n")

    chain = load_wrapped_chain(str(path), ["new", "--flag"])

    assert chain.name == "review"
    assert [spec.name for spec in chain.flat()] == ["usage", "new"]
    assert chain.flat()[-1].run == ("new", "--flag")


def test_a_chain_without_agent_gets_one(chain_file):
    path = chain_file("proxies: [{use: usage}]\n")

    assert [spec.name for spec in load_wrapped_chain(str(path), ["new"]).flat()] == ["usage", "new"]


def test_the_agent_of_a_nested_chain_is_replaced_behind_its_proxies(chain_file):
    chain_file("proxies: [{use: redact}]\nagent: {run: old}\n", "inner.yaml")
    path = chain_file("proxies: [{use: usage}]\nagent: {chain: inner.yaml}\n")

    chain = load_wrapped_chain(str(path), ["new"])

    assert [spec.name for spec in chain.flat()] == ["usage", "inner/redact", "inner/new"]


def test_the_sandbox_and_the_time_limits_stay_and_the_environment_goes(chain_file):
    path = chain_file(
        "agent:\n  run: old\n  sandbox: {network: false}\n  start_timeout: 7s\n"
        "  cancel_timeout: 3s\n  cwd: /srv\n  env: {KEY: secret-of-old}\n  inherit_env: false\n"
    )

    agent = load_wrapped_chain(str(path), ["new"]).flat()[-1]

    assert agent.sandbox is not None
    assert not agent.sandbox.network
    assert (agent.start_timeout, agent.cancel_timeout) == (7.0, 3.0)
    assert (agent.cwd, agent.env, agent.inherit_env) == (None, {}, True)


def test_names_are_unique():
    chain = chain_of_uses(["usage", "usage"], ["usage"])

    assert [spec.name for spec in chain.flat()] == ["usage", "usage-2", "usage-3"]


@pytest.mark.parametrize(
    "text",
    ['context:{"text": "${WORD}", "every": "3"}', "context: {text: '${WORD}', every: 3}"],
)
def test_options_are_json_or_yaml_and_typed_by_the_proxy(text, monkeypatch):
    monkeypatch.setenv("WORD", "Be kind.")

    (context, _) = chain_of_uses([text], ["agent"]).flat()

    options = structure_options(context, PromptContext)
    assert (options.text, options.every) == ("Be kind.", 3)


def test_a_class_in_a_file_is_found_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    (approve, _) = chain_of_uses(["./approve.py:Approve:{kinds: [read]}"], ["agent"]).flat()

    assert (approve.use, approve.name) == (f"{tmp_path}/approve.py:Approve", "Approve")
    assert approve.options == {"kinds": ["read"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--use '' names no proxy"),
        (":{a: b}", "names no proxy"),
        ("context:{files: [a}", "--use context:1:11: error: not valid YAML"),
        ("context:{text: '${}'}", "--use context:1:"),
    ],
)
def test_mistakes_name_the_option(text, message):
    with pytest.raises(ValueError) as caught:
        chain_of_uses([text], ["agent"])

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("uses", "said"),
    [
        (["usage", "contxt"], "called 'contxt'; did you mean 'context'?"),
        (["./nothing.py:Plugin"], "no such file: "),
        (["context:{files: [a}"], "--use context:1:11: error"),
    ],
)
def test_mistakes_in_use_are_named(uses, said, capsys):
    warn_of_mistakes(None, uses, ["agent"])

    assert said in capsys.readouterr().err


def test_mistakes_of_a_chain_file_are_printed(tmp_path, capsys):
    (tmp_path / "chain.yaml").write_text("version: 1\nproxis: []\n")

    warn_of_mistakes(str(tmp_path / "chain.yaml"), [], ["agent"])

    said = capsys.readouterr().err
    assert "chain.yaml:2:1: error: " in said
    assert "its chain file has mistakes" in said


def test_without_mistakes_nothing_is_said(tmp_path, capsys):
    (tmp_path / "chain.yaml").write_text("version: 1\nproxies: [{use: usage}, {run: [x]}]\n")

    warn_of_mistakes(str(tmp_path / "chain.yaml"), [], ["agent"])
    warn_of_mistakes(None, ["usage"], ["agent"])

    assert capsys.readouterr().err == ""
