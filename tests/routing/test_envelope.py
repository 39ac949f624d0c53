"""The successor envelope, in both dialects."""

from __future__ import annotations

import json
import sys

import pytest

from conductor.errors import RequestError
from conductor.routing.envelope import notification_affixes, unwrap

DIALECTS = ["proxy", "_proxy"]


def unwrapped(params):
    inner = unwrap(params)
    return inner.method, None if inner.params is None else bytes(inner.params)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (b'{"method":"m","params":{"a":1e400}}', ("m", b'{"a":1e400}')),
        (b'{"params":[1, 2],"method":"m"}', ("m", b"[1, 2]")),
        (b'{"method":"m"}', ("m", None)),
        (b'{"method":"m","params":null}', ("m", None)),
        (b'{"method":"m","params":{},"_meta":{"a":1},"meta":2,"other":3}', ("m", b"{}")),
        (b'{"method":"m","params":{"_meta":{"kept":1}}}', ("m", b'{"_meta":{"kept":1}}')),
        (rb'{"method":"m","params":["\ud83d"]}', ("m", rb'["\ud83d"]')),
        (rb'{"method":"m","_meta":"\udead"}', ("m", None)),
        (rb'{ "method" : "m" , "params" : { "a" : "\ud83d" } }', ("m", rb'{ "a" : "\ud83d" }')),
    ],
)
def test_the_inner_message_keeps_its_bytes(params, expected):
    assert unwrapped(params) == expected


@pytest.mark.parametrize(
    "params",
    [
        None,
        b"null",
        b"[]",
        b"{}",
        b'{"method":7,"params":{}}',
        b'{"params":{}}',
        b'{"method":"m","params":7}',
        b'{"method":"m","params":"text"}',
        b'{"method":"m","params":true}',
        rb'{"method":"\ud800","params":{}}',
        rb'{"params":["\ud800"]}',
        rb'{"method":"m","params":"\ud800"}',
        rb'["\ud800"]',
    ],
)
def test_an_invalid_envelope_is_refused_with_the_reason(params):
    with pytest.raises(RequestError) as caught:
        unwrap(params)

    assert (caught.value.code, caught.value.message) == (-32602, "Invalid params")
    assert caught.value.data["error"]


@pytest.mark.parametrize(("junk", "held"), [(b" " * 500_000, 0), (b" ", 1)])
def test_a_small_part_of_a_large_envelope_does_not_hold_all_of_it(junk, held):
    params = b'{"method":"m",%b"params":{}}' % junk
    before = sys.getrefcount(params)

    inner = unwrap(params)

    assert inner.params is not None
    assert bytes(inner.params) == b"{}"
    assert sys.getrefcount(params) - before == held


@pytest.mark.parametrize("dialect", [None, *DIALECTS])
@pytest.mark.parametrize("method", ["session/update", "nul\0", 'quo"te', "é"])
def test_the_prefix_and_suffix_of_a_notification_surround_its_params(dialect, method):
    head, tail = notification_affixes(dialect, method)

    message = json.loads(head + b'{"a":1}' + tail)
    inner = message if dialect is None else message["params"]
    assert tail.endswith(b"\n")
    assert (inner["method"], inner["params"]) == (method, {"a": 1})
    assert message["method"] == (method if dialect is None else f"{dialect}/successor")
