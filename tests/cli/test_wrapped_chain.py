"""The chain of `wrap`: which settings of a chain file's agent also hold for the given command."""

from __future__ import annotations

import pytest

from conductor.chainfile import structure_options
from conductor.cli.wrapped_chain import chain_of_uses, load_wrapped_chain
from proxies.context import PromptContext


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
