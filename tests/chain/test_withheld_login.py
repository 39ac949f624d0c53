"""Authentication methods as a remote client gets them: without commands."""

from __future__ import annotations

import json

import pytest
from support.memory_chain import INITIALIZE, chain_of, running_chain
from support.raw_json import dumps

from conductor.chain.login_methods import error_without_commands, result_without_commands

PLAIN = b'{"id":"p","name":"P"}'
TERMINAL = b'{"id":"t","name":"T","type":"terminal","args":["--login"],"env":{"K":"secret"}}'
WHOLE = b'{"id":"w","_meta":{"terminal-auth":{"command":"/srv/secret/agent"}}}'
HIDDEN = [
    b'{"id":"z","_meta":["terminal-auth","secret"]}',
    b'{"id":"z","args":1,"_meta":{"terminal-auth":{"command":"secret"}}}',
    rb'{"id":"z","_meta":{"terminal-\u0061uth":{"command":"secret"}}}',
    rb'{"id":"z","\u005fmeta":{"x":{"terminal-auth":{"command":"secret"}}}}',
    b'{"id":"z","_meta":{"api-key":{"x":{"terminal-auth":"secret"},"y":["secret"]}}}',
    rb'{"id":"z","type":"term\u0069nal","args":["secret"]}',
    b'{"id":"z","type":"terminal","type":"agent","args":["secret"]}',
    b'{"id":"z","type":"agent","type":"terminal","args":["secret"]}',
    b'{"id":"z","type":["terminal"],"args":["secret"]}',
    b'{"id":"z","Type":"terminal","Args":["secret"],"env":[{"name":"K","value":"secret"}]}',
    b'{"id":"z","name":{"command":"secret"},"vars":[{"name":"K","default":"secret"},"secret"]}',
    b'{"id":"z","vars":{"value":"secret"}}',
    rb'{"id":"z","type":"\ud83d","args":["secret"]}',
    rb'{"id":"z\ud83d","args":["secret"]}',
    b'"secret"',
    b"7",
    b"null",
    b'["secret"]',
]


def methods(*each):
    return b'{"x":1.50,"authMethods":[%b]}' % b",".join(each)


@pytest.mark.parametrize("method", HIDDEN)
def test_a_method_hides_no_command_of_its_own_or_of_the_others(method):
    sent = methods(TERMINAL, method, WHOLE, PLAIN)

    result = result_without_commands(sent)
    error = error_without_commands(b'{"code":-32000,"message":"m","data":%b}' % sent)

    for told, text in [(json.loads(result), result), (json.loads(error)["data"], error)]:
        assert b"secret" not in text
        assert b"terminal" not in text
        assert b"1.50" in text
        assert told["authMethods"][-2:] == [{"id": "w"}, {"id": "p", "name": "P"}]


def test_a_method_of_another_type_is_left_out():
    sent = methods(b'{"id":"z","type":"other"}', PLAIN)

    assert json.loads(result_without_commands(sent))["authMethods"] == [json.loads(PLAIN)]


def test_a_method_that_the_client_performs_itself_stays():
    method = {
        "id": "key",
        "type": "env_var",
        "name": "Key \ud83d",
        "description": "d",
        "link": "https://example.com",
        "vars": [{"name": "KEY", "secret": True, "optional": False}],
        "_meta": {"api-key": {"provider": "p"}},
    }

    sent = methods(dumps(method))

    assert json.loads(result_without_commands(sent)) == {"x": 1.5, "authMethods": [method]}


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b'{"authMethods":["secret"],"authMethods":[]}', b'{"authMethods":[]}'),
        (b'{"AuthMethods":["secret"],"a":1}', b'{"a":1}'),
        (rb'{"\u0061uthMethods":[7]}', b'{"authMethods":[]}'),
        (b'{"authMethods":{"args":"secret"}}', b'{"authMethods":[]}'),
        (b'["secret"]', b"{}"),
        (b'{"a": 1.50}', b'{"a": 1.50}'),
    ],
)
def test_what_cannot_be_read_is_left_out(sent, told):
    assert result_without_commands(sent) == told


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b'{"code":1,"message":"m","data":{"b":{"authMethods":1}}}', {"b": {"authMethods": 1}}),
        (b'{"code":1,"message":"m","data":["x"]}', ["x"]),
        (b'{"code":1,"message":"m"}', None),
        (b'{"code":1,"message":"m","Data":{"authMethods":["secret"]}}', None),
        (b'{"code":1,"message":"m","data":{"authMethods":["secret"]},"data":"x"}', "x"),
    ],
)
def test_other_data_of_an_error_stays(sent, told):
    error = json.loads(error_without_commands(sent))

    assert error == {"code": 1, "message": "m", **({} if told is None else {"data": told})}


def test_an_error_that_cannot_be_read_is_another():
    assert b"secret" not in error_without_commands(b'["secret"]')


@pytest.mark.parametrize(("login", "kept"), [("withheld", [PLAIN]), ("kept", [TERMINAL, PLAIN])])
async def test_the_client_gets_it_in_results_and_in_errors(login, kept):
    told = {"authMethods": [json.loads(each) for each in (TERMINAL, PLAIN)]}
    async with running_chain(chain_of(0), terminal_login=login) as harness:
        await harness.send(INITIALIZE)
        harness.agent.answer(await harness.agent.receive(), {"protocolVersion": 1, **told})
        result = (await harness.client.receive())["result"]
        await harness.send({"id": 1, "method": "session/new", "params": {}})
        harness.agent.refuse(await harness.agent.receive(), -32000, "Log in", told)
        error = (await harness.client.receive())["error"]

    expected = [json.loads(each) for each in kept]
    assert result["authMethods"] == expected
    assert error == {"code": -32000, "message": "Log in", "data": {"authMethods": expected}}
