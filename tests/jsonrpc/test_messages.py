"""Messages as bytes, and exceptions as wire errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import raw_json

from conductor.errors import ComponentExited, RequestCancelled, RequestError, StartError
from conductor.jsonrpc import messages
from conductor.limits import MAX_DEPTH
from conductor.routing.failure_errors import FailureErrors


def line(pieces):
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (
            messages.request_pieces(1, "m", b"{}"),
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}\n',
        ),
        (
            messages.request_pieces("a\n", "m", None),
            b'{"jsonrpc":"2.0","id":"a\\n","method":"m"}\n',
        ),
        (
            messages.notification_pieces("é", memoryview(b"[1]")),
            '{"jsonrpc":"2.0","method":"é","params":[1]}\n'.encode(),
        ),
        (messages.notification_pieces("m", None), b'{"jsonrpc":"2.0","method":"m"}\n'),
        (messages.result_pieces(None, b"1e400"), b'{"jsonrpc":"2.0","id":null,"result":1e400}\n'),
        (messages.error_pieces("1", b"{}"), b'{"jsonrpc":"2.0","id":"1","error":{}}\n'),
    ],
)
def test_a_message_is_one_line(pieces, expected):
    assert line(pieces) == expected


@given(st.none() | st.integers(-(2**63), 2**63 - 1) | st.text())
def test_an_id_keeps_its_type(id):
    assert json.loads(messages.encode_id(id)) == id


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (RequestError(-5, "no", {"why": 1}), {"code": -5, "message": "no", "data": {"why": 1}}),
        (RequestCancelled(), {"code": -32800, "message": "Request cancelled"}),
        (
            RequestError(1, "half \ud83d", "\udead"),
            {"code": 1, "message": "half \ud83d", "data": "\udead"},
        ),
        (RequestError(1, "x", 10**30), {"code": 1, "message": "x", "data": 10**30}),
        (RequestError(1, "x", [int]), {"code": 1, "message": "x", "data": ["<class 'int'>"]}),
        (
            RequestError(1, "\udead", [float("nan"), float("-inf")]),
            {"code": 1, "message": "\udead", "data": "[nan, -inf]"},
        ),
        (
            StartError("notes", "it is not there", command=["notes"], location="c.yaml:3:8"),
            {
                "code": -32603,
                "message": "component 'notes' did not start: it is not there",
                "data": {
                    "component": "notes",
                    "reason": "it is not there",
                    "command": ["notes"],
                    "place": "c.yaml:3:8",
                },
            },
        ),
        (
            ComponentExited("notes", "exited with status 3", stderr_tail=["a", "b"]),
            {
                "code": -32603,
                "message": "component 'notes' exited with status 3",
                "data": {
                    "component": "notes",
                    "exitStatus": "exited with status 3",
                    "stderr": ["a", "b"],
                    "details": "component 'notes' exited with status 3",
                },
            },
        ),
        (
            ValueError("oops"),
            {"code": -32603, "message": "Internal error: ValueError: oops", "data": "ValueError"},
        ),
    ],
)
def test_an_exception_becomes_a_wire_error(exc, expected):
    assert json.loads(messages.exception_to_error(exc), parse_constant=pytest.fail) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (b'{"code":1,"message":"x"}', (1, "x", None)),
        (b'{"code":1,"message":"x","data":{"a":[1]},"more":2}', (1, "x", {"a": [1]})),
        (rb'{"code":1,"message":"\ud800","data":"\udead"}', (1, "\ud800", "\udead")),
        (b'{"code":1,"message":"x","data":1e400}', (1, "x", float("inf"))),
    ],
)
def test_an_error_response_becomes_an_exception(error, expected):
    exc = messages.error_to_exception(error)

    assert (exc.code, exc.message, exc.data) == expected


@pytest.mark.parametrize("text", [b"", rb'"\ud800",'])
def test_an_error_response_nested_too_deeply_becomes_an_exception(text):
    deep = b"[%b%b]" % (text, raw_json.nested(MAX_DEPTH))
    exc = messages.error_to_exception(b'{"code":1,"message":"x","data":%b}' % deep)

    assert exc.code == messages.INTERNAL_ERROR
    assert (exc.message, exc.data) == ("The error is nested more than 128 deep", None)


def test_a_cancellation_error_becomes_request_cancelled():
    error = messages.error_to_exception(b'{"code":-32800,"message":"gone","data":{"by":"user"}}')
    assert type(error) is RequestCancelled
    assert (error.code, error.message, error.data) == (-32800, "gone", {"by": "user"})


@pytest.mark.parametrize(
    "exc", [StartError("x", "no such file: caf\udce9"), OSError("no such file: caf\udce9")]
)
def test_an_exception_with_a_lone_surrogate_becomes_valid_json(exc):
    error = messages.exception_to_error(exc)

    assert b"no such file: caf?" in error
    assert b"\\ud" not in error


def test_remedies_with_a_lone_surrogate_become_valid_json():
    failure = FailureErrors.of(ComponentExited("p", "failed: caf\udce9"))

    for error in (failure.error, failure.prompt_cut_off, failure.prompt_undelivered):
        assert b"caf?" in error
        assert b"\\ud" not in error
