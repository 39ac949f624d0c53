"""Conditions on components: all keys must hold, of several values one."""

from __future__ import annotations

import json

import pytest
from support.raw_json import dumps

from conductor.chainfile import load
from conductor.chainfile.when import Facts, agent_names, client_facts, unmet_conditions
from conductor.errors import ChainFileError


@pytest.fixture
def unmet(tmp_path):
    """The conditions that do not hold of a chain with one proxy with this `when:`."""

    def unmet(when, facts, agent="run: [npx, '@org/my-agent@1.2', --acp]"):
        path = tmp_path / "chain.yaml"
        path.write_text(f"version: 1\nproxies: [{{run: a, when: {when}}}]\nagent: {{{agent}}}\n")
        return list(unmet_conditions(load(path).flat(), facts).values())

    return unmet


def facts(**members):
    known = {"clientInfo": {"name": "Zed"}, "clientCapabilities": {"fs": {"readTextFile": True}}}
    return client_facts(json.dumps(known).encode(), Facts(**{"environ": {}} | members))


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("{client: zed}", True),
        ("{client: 'z*'}", True),
        ("{client: [emacs, zed]}", True),
        ("{client: emacs}", False),
        ("{agent: my-agent}", True),
        ("{agent: agent}", False),
        ("{cwd: /work/team}", True),
        ("{cwd: '/work/*/app'}", True),
        ("{cwd: '/**/app'}", True),
        ("{cwd: '/work/te'}", False),
        ("{cwd: '/*/app'}", False),
        ("{capability: fs.readTextFile}", True),
        ("{capability: fs}", True),
        ("{capability: fs.writeTextFile}", False),
        ("{capability: terminal}", False),
        ("{env: CI}", True),
        ("{env: CI=yes}", True),
        ("{env: CI=no}", False),
        ("{env: [OTHER, CI]}", True),
        ("{env: OTHER}", False),
        ("{client: zed, env: OTHER}", False),
        ("{client: zed, env: CI, cwd: /work}", True),
    ],
)
def test_a_condition(unmet, when, holds):
    known = facts(
        environ={"CI": "yes"}, cwd="/work/team/app/src", agents=frozenset({"my-agent", "npx"})
    )

    assert (unmet(when, known) == []) is holds


def test_the_condition_that_fails_is_named(unmet):
    assert unmet("{client: [a, b], env: X}", facts()) == ["client: a, b"]


def test_of_an_unknown_client_nothing_is_decided(unmet):
    assert unmet("{client: zed, capability: fs}", Facts({})) == []
    assert unmet("{client: zed}", client_facts(b"{}", Facts({}))) == ["client: zed"]


def test_version_2_has_other_names(unmet):
    params = {"info": {"name": "Zed"}, "capabilities": {"terminal": {}}}
    known = client_facts(dumps(params), Facts({}))

    assert unmet("{client: zed, capability: terminal}", known) == []


@pytest.mark.parametrize("params", [b"[1]", b'{"clientInfo": 3, "clientCapabilities": []}', b"{"])
def test_odd_params_of_a_client_hold_no_condition(unmet, params):
    assert unmet("{capability: fs.a}", client_facts(params, Facts({}))) == ["capability: fs.a"]


def test_a_directory_is_relative_to_the_file(unmet, tmp_path):
    assert unmet("{cwd: src}", facts(cwd=f"{tmp_path}/src/x")) == []
    assert unmet("{cwd: src}", facts(cwd="/src/x")) == ["cwd: " + str(tmp_path / "src")]


def test_names_of_an_agent(tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text("version: 1\nagent: {name: mine, run: [python3, /x/agent.py]}\n")
    assert agent_names(load(path)) == {"mine", "agent"}

    path.write_text("version: 1\nagent: claude-acp\n")
    assert agent_names(load(path)) == {"claude-acp"}


def test_conditions_of_a_nested_chain_hold_for_its_components(tmp_path):
    (tmp_path / "inner.yaml").write_text(
        "version: 1\nproxies: [{run: a}, {run: b, when: {env: B}}]\n"
    )
    path = tmp_path / "chain.yaml"
    path.write_text(
        "version: 1\nproxies: [{name: in, chain: inner.yaml, when: {env: A}}]\nagent: {run: x}\n"
    )
    specs = load(path).flat()

    assert unmet_conditions(specs, Facts({"A": "1"})) == {"in/b": "env: B"}
    assert unmet_conditions(specs, Facts({"B": "1"})) == {"in/a": "env: A", "in/b": "env: A"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proxies: [{run: a, when: {clint: zed}}]\n", "unknown key `clint`"),
        ("proxies: [{run: a, when: zed}]\n", "expected a mapping"),
        ("proxies: [{run: a, when: {env: '=x'}}]\n", "expected the name of a variable"),
        ("proxies: [{run: a, when: {env: 3}}]\n", "expected the name of a variable"),
        ("proxies: [{run: a, when: {}}]\n", "`when` has no condition"),
        ("proxies: [{run: a, when: {agent: []}}]\n", "`when` has no condition"),
        ("agent: {run: a, when: {env: X}}\n", "an agent has no `when`"),
    ],
)
def test_mistakes(tmp_path, text, message):
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\n{text}")

    with pytest.raises(ChainFileError, match=message):
        load(path)


@pytest.mark.parametrize(("pattern", "cwd"), [("link", "real/app"), ("real/*", "link/./app/")])
def test_a_directory_is_the_same_in_every_spelling(unmet, tmp_path, pattern, cwd):
    (tmp_path / "real" / "app").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")

    assert unmet(f"{{cwd: '{tmp_path}/{pattern}'}}", facts(cwd=f"{tmp_path}/{cwd}")) == []
    assert unmet(f"{{cwd: '{tmp_path}/other'}}", facts(cwd=f"{tmp_path}/{cwd}")) != []
