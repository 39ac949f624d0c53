"""The restart marker in `_meta` of `initialize`."""

import pytest
from support.raw_json import dumps

from conductor.jsonrpc.json_object import members_or_empty
from conductor.routing.restart_marker import (
    RESTART_MARKER,
    restarted_sessions,
    with_restart_marker,
)


@pytest.mark.parametrize(
    "params",
    [
        b'{"protocolVersion":1}',
        b'{"protocolVersion":1,"_meta":{"x":1e400,"y":"\\ud800"}}',
        b'{"_meta":null}',
        b"{}",
        with_restart_marker(b"{}", ["of an earlier restart"]),
    ],
)
def test_a_marker_names_the_sessions_and_changes_nothing_else(params):
    before, after = (
        members_or_empty(params),
        members_or_empty(with_restart_marker(params, ["s1", "s2"])),
    )

    assert restarted_sessions(with_restart_marker(params, ["s1", "s2"])) == ["s1", "s2"]
    assert {name: bytes(value) for name, value in after.items() if name != "_meta"} == {
        name: bytes(value) for name, value in before.items() if name != "_meta"
    }
    kept, meta = (members_or_empty(bytes(each.get("_meta", b"{}"))) for each in (before, after))
    del meta[RESTART_MARKER]
    kept.pop(RESTART_MARKER, None)
    assert {k: bytes(v) for k, v in meta.items()} == {k: bytes(v) for k, v in kept.items()}


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"{}",
        b'{"_meta":{}}',
        b'{"_meta":null}',
        dumps({"title": RESTART_MARKER}),
        dumps({"_meta": {RESTART_MARKER: "once"}}),
        dumps({"_meta": {RESTART_MARKER: {"sessions": [1]}}}),
    ],
)
def test_an_invalid_marker_is_none(params):
    assert restarted_sessions(params) is None


def test_a_marker_may_have_no_sessions():
    assert restarted_sessions(with_restart_marker(b"{}", [])) == []
