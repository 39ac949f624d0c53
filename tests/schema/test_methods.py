"""The table of methods against the official schemas."""

from __future__ import annotations

import pytest
from support.schema_strategies import definitions

from conductor.schema import (
    METHODS,
    METHODS_BY_VERSION,
    client_capability_paths,
    notification_type,
    params_type,
    result_type,
    similar_methods,
    v1,
    v2,
)


@pytest.mark.parametrize(
    ("name", "kind", "source"),
    [
        ("session/prompt", "request", "client"),
        ("session/update", "notification", "agent"),
        ("session/request_permission", "request", "agent"),
        ("session/cancel", "notification", "client"),
        ("$/cancel_request", "notification", "both"),
        ("proxy/successor", "both", "proxy"),
        ("mcp/message", "both", "both"),
        ("mcp/connect", "request", "agent"),
        ("nes/start", "request", "client"),
    ],
)
def test_method_has_its_sender_and_kind(name: str, kind: str, source: str) -> None:
    assert (METHODS[name].kind, METHODS[name].source) == (kind, source)


@pytest.mark.parametrize("version", [1, 2])
def test_every_method_of_the_schemas_is_in_the_table_with_types_that_exist(version: int) -> None:
    named = {
        schema["x-method"]
        for state in ("newest", "2026-08")
        for schema in definitions(state, version).values()
        if "x-method" in schema
    }
    assert METHODS_BY_VERSION[version].keys() == named
    for name, method in METHODS_BY_VERSION[version].items():
        assert params_type(name, version) is not None
        assert notification_type(name, version) is not None
        assert (result_type(name, version) is None) == (method.kind == "notification")


def test_types_are_those_of_the_version() -> None:
    assert params_type("session/update", 1) is v1.SessionNotification
    assert params_type("session/update", 2) is v2.UpdateSessionNotification
    assert result_type("session/prompt", 1) is v1.PromptResponse
    assert notification_type("mcp/message", 1) is v1.MessageMcpNotification
    assert params_type("mcp/message", 1) is v1.MessageMcpRequest


def test_misspelt_method_has_suggestions() -> None:
    assert similar_methods("session/promt")[0] == "session/prompt"
    assert similar_methods("zzzzzz") == []


def test_objects_and_their_members_of_both_versions_are_paths_of_capabilities():
    paths = client_capability_paths()

    assert {"fs", "fs.writeTextFile", "terminal", "auth.terminal", "elicitation.form"} <= paths
    assert {"nes.searchAndReplace", "session.configOptions.boolean"} <= paths
    assert not any("_meta" in path for path in paths)
