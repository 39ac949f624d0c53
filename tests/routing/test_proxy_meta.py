"""The `_meta` members by which conductor and bridge inform proxies: added, read, nothing else
changed."""

from __future__ import annotations

import json

import pytest
from support import raw_json
from support.raw_json import dumps

from conductor.bridge_api import declared_server_names, with_server_names
from conductor.routing.proxy_meta import (
    RESTART_MARKER,
    SERVER_NAMES,
    restarted_sessions,
    with_restart_marker,
)


def test_a_restart_marker_names_the_sessions_and_replaces_that_of_an_earlier_restart():
    params = b'{"a":1e400, "_meta":{"x":"\\ud800","acp-conductor/restart":{"sessions":["s0"]}}}'

    marked = with_restart_marker(params, ["s1", "s2"])

    marker = b'"acp-conductor/restart":{"sessions":["s1","s2"]}'
    assert marked == b'{"a":1e400,"_meta":{"x":"\\ud800",%b}}' % marker
    assert restarted_sessions(marked) == ["s1", "s2"]


@pytest.mark.parametrize("params", [b"{}", b'{"_meta":null}'])
def test_a_restart_marker_may_have_no_sessions(params):
    assert restarted_sessions(with_restart_marker(params, [])) == []


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"{}",
        b'{"_meta":null}',
        dumps({"title": RESTART_MARKER}),
        dumps({"_meta": {RESTART_MARKER: "once"}}),
        dumps({"_meta": {RESTART_MARKER: {"sessions": [1]}}}),
    ],
)
def test_an_invalid_restart_marker_is_none(params):
    assert restarted_sessions(params) is None


def test_the_result_of_a_set_up_says_the_declared_names():
    raw = b'{"sessionId":"s","big":1e400,"_meta":{"own":1e400}}'
    told = with_server_names(raw, {"tools-2": "tools"})
    assert told == (
        b'{"sessionId":"s","big":1e400,"_meta":{"own":1e400,'
        b'"acp-conductor/mcpServerNames":{"tools-2": "tools"}}}'
    )


def test_null_becomes_an_object_with_the_declared_names():
    told = json.loads(with_server_names(b"null", {"tools-2": "tools"}))
    assert declared_server_names(told) == {"tools-2": "tools"}


def test_half_an_emoji_in_a_declared_name_or_in_the_result():
    told = with_server_names(b'{"title":"\\ud83d"}', {"\ud83d-2": "\ud83d"})
    assert declared_server_names(json.loads(told)) == {"\ud83d-2": "\ud83d"}


@pytest.mark.parametrize(
    "raw", [b"[1]", b'"text"', b'{"a":%b}' % raw_json.nested(raw_json.TOO_DEEP)]
)
def test_a_result_that_is_no_object_or_too_deep_to_read_stays_as_it_is(raw):
    assert with_server_names(raw, {"tools-2": "tools"}) is raw


def test_without_renamed_servers_the_result_stays_as_it_is():
    raw = b'{"sessionId": "s"}'
    assert with_server_names(raw, {}) is raw


@pytest.mark.parametrize(
    "result", [None, [], {"_meta": None}, {"_meta": {SERVER_NAMES: []}}, {SERVER_NAMES: {"a": "b"}}]
)
def test_a_result_that_says_nothing_of_declared_names(result):
    assert declared_server_names(result) == {}
