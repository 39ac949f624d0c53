from __future__ import annotations

import pytest
from support.raw_json import dumps

from conductor.adapters.negotiated import Announced, announced_by_agent, announced_by_client
from conductor.adapters.table import adapter_settings, adapters_for_agent, adapters_for_client
from conductor.chainfile.model import Adaptation, ComponentSpec

V1, V2 = (Announced(version=version, capabilities={}) for version in (1, 2))


def names(needed):
    return [each.adapter.name for each in needed]


@pytest.mark.parametrize(("client", "agent"), [(V1, V2), (V2, V1), (V1, None), (V2, None)])
def test_versions_that_differ_need_the_conversion(client, agent):
    *_, needed = adapters_for_agent(client, agent, {"subagents": Adaptation("never")})

    assert needed.adapter.name == "v1_v2"
    assert needed.options == {"agent_version": 3 - client.version}


@pytest.mark.parametrize("version", [V1, V2])
def test_peers_that_fit_need_nothing(version):
    assert adapters_for_agent(version, version, {}) == []
    assert adapters_for_client(version, {}) == []


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ({"agentInfo": {"name": "Cursor"}}, ["cursor_questions"]),
        ({"authMethods": [{"id": "cursor_login"}, 1]}, ["cursor_questions"]),
        ({"authMethods": [{"id": "login"}]}, []),
        ({"authMethods": 1}, []),
    ],
)
def test_the_agent_of_cursor_is_known_by_its_name_or_its_login(agent, expected):
    told = announced_by_agent(dumps({"protocolVersion": 1, **agent}))

    assert names(adapters_for_agent(V1, told, {})) == expected
    assert names(adapters_for_agent(V2, told, {})) == ["v1_v2", *expected]
    assert adapters_for_agent(V2, told, {"v1_v2": Adaptation("never")}) == []


@pytest.mark.parametrize(
    ("adapter", "name", "options"),
    [
        ("elicitation", "CodeCompanion.nvim", {"options_by_kind": True}),
        ("elicitation", "acpx", {"options_by_kind": True}),
        ("elicitation", "", {"options_by_kind": True}),
        ("elicitation", "zed", {}),
        ("turn_updates", "CodeCompanion.nvim", {"questions": True}),
        ("turn_updates", "zed", {}),
    ],
)
def test_an_adapter_has_the_options_for_its_client(adapter, name, options):
    told = Announced(version=1, capabilities={}, name=name)

    settings = {"normalize": Adaptation("never"), adapter: Adaptation("always")}
    (needed,) = adapters_for_client(told, settings)
    assert needed.options == options


@pytest.mark.parametrize(
    ("name", "lacking", "having"),
    [
        ("elicitation", {"elicitation": {"form": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        (
            "local_files",
            {"fs": {"readTextFile": True, "writeTextFile": False}},
            {"fs": {"readTextFile": True, "writeTextFile": True}},
        ),
    ],
)
def test_an_adapter_of_the_client_is_for_version_1_without_the_capability(name, lacking, having):
    settings = {name: Adaptation("auto")}

    def needed(capabilities, version=1):
        client = Announced(version=version, capabilities=capabilities)
        return names(adapters_for_client(client, settings))

    assert needed(lacking) == [name]
    assert needed(having) == needed({}, version=2) == []


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.parametrize("agent", [V1, None])
def test_what_a_client_of_version_2_lacks_for_an_agent_of_version_1_stands_behind_the_conversion(
    agent, mode
):
    asked = ("elicitation", "local_files", "local_terminals", "journal")
    settings = {name: Adaptation(mode) for name in (*asked, "known_kinds", "queue")}
    knows = Announced(version=2, capabilities={"elicitation": {"form": {}, "url": {}}})

    found = names(adapters_for_agent(V2, agent, settings))
    assert found[found.index("v1_v2") :] == ["v1_v2", *asked]
    assert adapters_for_agent(V2, V2, {name: Adaptation(mode) for name in asked}) == []
    assert not {*names(adapters_for_client(V2, settings))} & {*asked}
    if mode == "auto":
        assert "elicitation" not in names(adapters_for_agent(knows, agent, settings))


PROMPT = {"image": True, "audio": True, "embeddedContext": True}


@pytest.mark.parametrize(
    ("name", "version", "lacking", "having"),
    [
        ("additional_directories", 2, {"session": {}}, {"session": {"additionalDirectories": {}}}),
        (
            "prompt_content",
            1,
            {"promptCapabilities": {**PROMPT, "audio": False}},
            {"promptCapabilities": PROMPT},
        ),
        (
            "prompt_content",
            2,
            {"session": {"prompt": {"image": {}}}},
            {"session": {"prompt": {name: {} for name in PROMPT}}},
        ),
    ],
)
def test_an_adapter_of_the_agent_is_for_one_without_the_capability(name, version, lacking, having):
    client = Announced(version=version, capabilities={})

    def needed(capabilities, mode="auto"):
        agent = Announced(version=version, capabilities=capabilities)
        return names(adapters_for_agent(client, agent, {name: Adaptation(mode)}))

    assert needed(lacking) == [name]
    assert needed(having) == needed(lacking, "never") == []
    assert adapters_for_agent(client, Announced(version=version, capabilities=lacking), {}) == []


def test_agents_of_version_2_take_prompts_while_a_turn_runs():
    assert adapters_for_agent(V2, V2, {"queue": Adaptation("auto")}) == []


def test_an_agent_that_refuses_the_version_may_need_more_than_the_conversion():
    asked = ("system_prompt", "additional_directories", "prompt_content")
    settings = {name: Adaptation("auto") for name in asked}

    assert names(adapters_for_agent(V1, None, settings)) == ["subagents", *asked, "v1_v2"]


def test_options_of_the_chain_file_come_before_those_of_the_table():
    written = Adaptation("auto", {"agent_version": 1, "more": True})
    *_, needed = adapters_for_agent(V1, V2, {"v1_v2": written})

    assert needed.options == {"agent_version": 1, "more": True}


@pytest.mark.parametrize(
    "params",
    [
        {"protocolVersion": 1, "clientCapabilities": {"a": {}}, "clientInfo": {"name": "x"}},
        {"protocolVersion": 1, "capabilities": {"a": {}}, "info": {"name": "x"}},
    ],
)
def test_both_versions_are_read_alike(params):
    assert announced_by_client(dumps(params)) == Announced(
        version=1, capabilities={"a": {}}, name="x"
    )


@pytest.mark.parametrize("raw", [None, b"", b"[]", b"{", b'{"protocolVersion": true}', b"1"])
def test_what_cannot_be_read_announces_nothing(raw):
    assert announced_by_agent(raw) == Announced(version=1, capabilities={})


@pytest.mark.parametrize(
    ("value", "has"), [({}, True), (True, True), (False, False), (None, False)]
)
def test_a_capability_is_an_object_or_true(value, has):
    announced = Announced(version=1, capabilities={"fs": {"read": value}})

    assert announced.has("fs", "read") is has
    assert not announced.has("fs", "read", "more")


@pytest.mark.parametrize("agent", [V2, None])
def test_a_client_of_version_1_needs_the_sessions_of_subagents_converted_with_the_rest(agent):
    knows = Announced(version=1, capabilities={"subagents": {}})

    assert names(adapters_for_agent(V1, agent, {})) == ["subagents", "v1_v2"]
    assert names(adapters_for_agent(knows, agent, {})) == ["v1_v2"]
    assert adapters_for_agent(V1, agent, {"v1_v2": Adaptation("never")}) == []


def test_a_proxy_that_the_chain_has_by_its_name_is_not_inserted_again():
    auto = Adaptation("auto")
    components = [ComponentSpec(name="a", use="notices"), ComponentSpec(name="b", run=("x",))]

    found = adapter_settings({"notices": auto, "journal": auto}, components)

    assert found == {"notices": Adaptation("never"), "journal": auto}
