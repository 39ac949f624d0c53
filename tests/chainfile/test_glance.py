"""What a glance finds is what reading the file finds, or less; a wrong file may look fine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conductor.chainfile import glance, load
from conductor.errors import ChainFileError

CHAINS = [
    path
    for path in sorted((Path(__file__).parents[2] / "chains").glob("*.yaml"))
    if "use: test-agent" in path.read_text()
]
ENVIRON = {"PATH": "/bin", "TOKEN": "secret", "EMPTY": "", "VERSION": "2"}


def read(path, environ):
    """What is started after the whole file was read."""
    return [
        (spec.run, spec.environment(environ), spec.cwd)
        for spec in load(path, environ=environ).flat()
        if spec.run is not None and spec.ssh is None
    ]


@pytest.fixture
def seen(tmp_path):
    """What a glance finds in a text, and what reading it does."""

    def see(text):
        path = tmp_path / "chain.yaml"
        path.write_text(text)
        return glance.programs(str(path), ENVIRON), read(path, ENVIRON)

    return see


@pytest.mark.parametrize("path", CHAINS, ids=lambda path: path.name)
def test_it_sees_the_agent_behind_any_of_our_own_proxies(seen, path):
    found, all_of_them = seen(path.read_text().replace("use: test-agent", "run: [agent]"))

    assert found == all_of_them
    assert found


@pytest.mark.parametrize(
    "agent",
    [
        "{run: [agent]}",
        "{run: agent}",
        "{run: [./agent, -v]}",
        "{run: ../bin/agent, cwd: work}",
        "{run: [~/bin/agent, ~/x], cwd: ~/work}",
        "{run: [agent, '${TOKEN}', '$$x', '${NONE:-default}', '${EMPTY:-y}']}",
        "{run: [agent], env: {KEY: '${TOKEN}', PATH: /usr/bin}}",
        "{run: [agent], env: {KEY: v}, inherit_env: false}",
        "{run: [agent], env: {}, inherit_env: true}",
        "{run: [agent], inherit_env: '${NONE:-false}'}",
        "{run: [agent], env: {$$A: b, '${NONE:-x}': '$$y', ~: z, null: n}}",
        "{run: [agent, 012, yes, 1e3, 'null', '~', '', 'a b']}",
        "{name: it, run: [agent], start_timeout: 3s, on_failure: restart, stop_timeout: 1s}",
        "&a {run: &r [agent, x], env: {A: &r2 b}}",
    ],
)
def test_it_sees_what_a_component_runs(seen, agent):
    found, all_of_them = seen(f"version: 1\nagent: {agent}\n")

    assert found == all_of_them
    assert len(found) == 1


def test_it_sees_proxies_first_and_an_alias_as_what_it_repeats(seen):
    found, all_of_them = seen("""version: 1
proxies:
  - run: &it [./proxy, a]
  - use: usage
  - run: *it
agent: {run: [agent]}
""")
    assert found == all_of_them
    assert [argv[-1] for argv, _, _ in found] == ["a", "a", "agent"]


def test_other_machines_and_nested_chains_take_more_than_a_glance(seen, tmp_path):
    (tmp_path / "inner.yaml").write_text("version: 1\nproxies: [{run: [inner]}]\n")
    found, all_of_them = seen("""version: 1
proxies:
  - chain: inner.yaml
  - {run: [proxy], ssh: host}
agent: {run: [agent]}
""")
    assert [argv for argv, _, _ in all_of_them] == [("inner",), ("agent",)]
    assert found == all_of_them[1:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 2\nagent: {run: [agent]}",
        "agent: {run: [agent]}",
        "version: 1\nproxies: [{run: [proxy]}]",
        "version: 1\nproxies: [{run: [proxy]}]\nagent:\n",
        "version: 1\nproxies: {run: [proxy]}\nagent: {run: [agent]}",
        "version: 1\nagent: {run: agent with words}",
        "version: 1\nagent: {run: []}",
        "version: 1\nagent: {run: [agent, ~]}",
        "version: 1\nagent: {run: [agent, [x]]}",
        "version: 1\nagent: {run: [agent, !!int 1]}",
        "version: 1\nagent: {run: [agent], run: [other]}",
        "version: 1\nagent: {run: [agent], inherit_env: perhaps}",
        "version: '${VERSION:-1}'\nagent: {run: [agent]}",
        "version: 1\nagent: {'${NONE:-run}': [agent]}",
        "version: 1\nx: &x {run: [agent]}\nagent: {<<: *x}",
        "version: 1\nproxies: [" + "{run: [proxy]}, " * 65 + "]\nagent: {run: [agent]}",
        "version: 1\nproxies: [&p {run: [proxy"
        + ", x" * 50
        + "]}"
        + ", *p" * 30
        + "]\nagent: {run: [a]}",
        "version: 1\nagent: {run: [agent, '${UNSET}']}",
        "version: 1\nagent: {run: [agent, '${']}",
        "version: 1\nagent: {run: [agent\n",
        "version: 1\nagent: {run: [agent]}\n---\nversion: 1\n",
        "version: 1\nagent: {run: " + "[" * 60 + "]" * 60 + "}",
        "version: 1\nagent: {run: [agent]} # " + "x" * 20_000,
        "version: 1\nagent: {run: [agent, \ud800]}",
    ],
)
def test_of_a_file_that_is_unusual_it_tells_nothing(tmp_path, text):
    path = tmp_path / "chain.yaml"
    path.write_text(text, errors="surrogatepass")

    assert glance.programs(str(path), ENVIRON) == []


def test_there_may_be_no_file(tmp_path):
    assert glance.programs(str(tmp_path / "none.yaml"), ENVIRON) == []
    assert glance.programs(str(tmp_path), ENVIRON) == []


words = st.sampled_from(
    [
        "agent",
        "./agent",
        "a b",
        "",
        "~",
        "null",
        "1",
        "true",
        "off",
        "${TOKEN}",
        "${NONE}",
        "$$",
        "é",
    ]
)
components = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "run": st.lists(words, max_size=3) | words | st.none(),
        "use": words,
        "ssh": words,
        "cwd": words | st.none(),
        "env": st.dictionaries(words, words | st.none(), max_size=2) | words,
        "inherit_env": words | st.booleans(),
        "${NONE:-run}": words,
        "start_timeout": words,
    },
)
files = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 2, "1"]), "agent": components},
    optional={"proxies": st.lists(components, max_size=3) | words | st.none(), "name": words},
)


@given(files, st.sampled_from([None, False, True]))
def test_it_never_sees_a_program_that_a_good_file_does_not_have(tmp_path_factory, data, flow):
    path = tmp_path_factory.mktemp("glance") / "chain.yaml"
    path.write_text(yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True))

    found = glance.programs(str(path), ENVIRON)
    try:
        wanted = read(path, ENVIRON)
    except ChainFileError:
        return
    if found:
        assert found == wanted
