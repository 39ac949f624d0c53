from __future__ import annotations

import json

import pytest
from support import raw_json

from conductor.bridge_api import declared_server_names, with_server_names
from conductor.routing.server_names import SERVER_NAMES


def test_the_answer_says_the_declared_names():
    raw = b'{"sessionId":"s","big":1e400,"_meta":{"own":1e400}}'
    told = with_server_names(raw, {"tools-2": "tools"})
    assert told == (
        b'{"sessionId":"s","big":1e400,"_meta":{"own":1e400,'
        b'"acp-conductor/mcpServerNames":{"tools-2": "tools"}}}'
    )


def test_null_becomes_an_object():
    told = json.loads(with_server_names(b"null", {"tools-2": "tools"}))
    assert declared_server_names(told) == {"tools-2": "tools"}


@pytest.mark.parametrize("raw", [b"[1]", b'"text"', b"true"])
def test_other_answers_stay_as_they_are(raw):
    assert with_server_names(raw, {"tools-2": "tools"}) is raw


def test_without_names_the_answer_stays_as_it_is():
    raw = b'{"sessionId": "s"}'
    assert with_server_names(raw, {}) is raw


def test_half_an_emoji_in_a_name_or_in_the_answer():
    told = with_server_names(b'{"title":"\\ud83d"}', {"\ud83d-2": "\ud83d"})
    assert declared_server_names(json.loads(told)) == {"\ud83d-2": "\ud83d"}


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"_meta": None},
        {"_meta": {SERVER_NAMES: []}},
        {"_meta": {SERVER_NAMES: {"a": 1}}},
    ],
)
def test_an_answer_that_says_nothing_of_the_kind(result):
    assert declared_server_names(result) == {}


def test_an_answer_too_deep_to_read_stays_as_it_is():
    deep = b'{"a":%b}' % raw_json.nested(raw_json.TOO_DEEP)
    assert with_server_names(deep, {"tools-2": "tools"}) is deep
