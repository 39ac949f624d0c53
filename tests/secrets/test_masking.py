"""No secret is in a trace: canaries in every string of both schemas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import reduce
from typing import Any

import pytest
from support.schema_instances import Schema
from support.schema_strategies import CASES
from support.seen_port import traced_port

from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.log import get_logger
from conductor.routing.port import UnconnectedPort
from conductor.secrets import masking
from conductor.secrets.masking import MASK, mask, redact
from conductor.tracing.reader import Trace
from conductor.tracing.recorder import current_recorder
from conductor.tracing.trace_file import TraceFile

KNOWN = "blue-horse-battery"
FORMS = {
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "openai": "sk-proj-abcdefghij0123456789",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghij",
    "aws": "AKIAABCDEFGHIJKLMNOP",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nabcdef+/123=\n-----END RSA PRIVATE KEY-----",
    "password of a URL": "postgres://user:horse@battery-horse@db.example/x",
    "token of a URL": "https://horsebattery@sentry.example/1",
    "header": "Authorization: Bearer horse0battery1",
    "setting": "export DB_PASSWORD=horse-battery",
    "JSON in a text": '{"api_key": "horse-battery"}',
}
LOOK_ALIKES = {
    "apiKey": "horse-battery",
    "acme.dev/token": "horse-battery",
    "x-api-key": "horse-battery",
    "credentials": {"user": "horse-battery", "list": ["horse-battery"]},
    "env": {"A": "horse-battery"},
    "headers": [{"name": "A", "value": "horse-battery"}],
    "http_headers": {"A": "horse-battery"},
    "environment": ["A=horse-battery"],
    "args": ["--token", "horse-battery", "--password=horse-battery"],
    "fields": [{"name": "clientSecret", "value": "horse-battery"}],
}

MOSTLY_SLOW = [
    pytest.param(state, version, marks=() if state == "newest" else pytest.mark.slow)
    for state, version in CASES
]

FAST = [("newest", 1, "head"), ("newest", 2, "full")]
SLOW = [
    ("newest", 1, "full"),
    ("newest", 2, "head"),
    ("2026-08", 1, "full"),
    ("2026-08", 2, "head"),
]


@pytest.fixture
def known_secret(monkeypatch):
    monkeypatch.setattr(masking, "_secrets", frozenset())
    masking.register_secrets([KNOWN])


def messages(state: str, version: int, text: str, meta: Any = None) -> list[tuple[str, bytes]]:
    """Method and payload, with all members, of every form of every definition of a schema."""
    schema = Schema(state, version)
    return [
        (node.get("x-method", "x"), json.dumps(payload, ensure_ascii=False).encode())
        for name, node in schema.definitions.items()
        for shape in schema.shapes({"$ref": f"#/$defs/{name}"})
        if isinstance(payload := filled(schema.full(shape), text, meta), dict)
    ]


def filled(value: Any, text: str, meta: Any) -> Any:
    """An instance with this text as all its strings, and with this `_meta`."""
    if isinstance(value, dict):
        made = {name: filled(inner, text, meta) for name, inner in value.items()}
        return made | ({"_meta": meta} if "_meta" in made else {})
    if isinstance(value, list):
        return [filled(inner, text, meta) for inner in value]
    return text if isinstance(value, str) and value.startswith("text-") else value


def traced(path, sent, payloads="full"):
    """The lines of a trace file with these messages as requests, notifications, results, errors."""
    file = TraceFile(path, payloads)
    recorder = file.recorder("chain")
    recorder.attach([])
    port = traced_port(recorder, "client", "agent")
    for number, (method, payload) in enumerate(sent):
        if number % 20 == 19:
            file.flush()
        port.notify(method, payload)
        for result, error in ((payload, None), (None, payload)):
            call = InFlightRequest(method, UnconnectedPort(), 1)
            port.request(call, method, payload)
            port.respond(call, result, error)
    recorder.end()
    file.flush()
    file.close()
    assert len(Trace.load(path).messages) == 5 * len(sent)
    return path.read_text()


@pytest.mark.parametrize("payloads", ["full", "head"])
@pytest.mark.parametrize(("state", "version"), MOSTLY_SLOW)
def test_a_known_secret_in_any_string_is_masked(tmp_path, known_secret, state, version, payloads):
    sent = messages(state, version, f"a {KNOWN}!", {KNOWN: KNOWN})

    text = traced(tmp_path / "trace", sent, payloads)

    assert sum(KNOWN.encode() in payload for _, payload in sent) > 100
    assert KNOWN not in text
    assert "a ***!" in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("state", "version"), MOSTLY_SLOW)
def test_a_secret_of_a_known_form_in_any_string_is_masked(state, version, form):
    for _, payload in messages(state, version, f"see {FORMS[form]}, please"):
        hidden = json.loads(mask(payload))
        assert secret_of(form) not in json.dumps(hidden)


def secret_of(form: str) -> str:
    """The part of a form that must not be seen."""
    return "horse" if "horse" in FORMS[form] else FORMS[form][8:20]


def test_text_around_a_secret_is_kept():
    for form, text in FORMS.items():
        masked = json.loads(mask(json.dumps({"text": f"see {text}, please"}).encode()))
        assert masked["text"].startswith("see "), form
        assert masked["text"].endswith(", please"), form


@pytest.mark.parametrize(
    ("state", "version", "payloads"),
    [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_look_alikes_in_any_meta_are_masked(tmp_path, state, version, payloads):
    sent = messages(state, version, "plain text", LOOK_ALIKES)

    text = traced(tmp_path / "trace", sent, payloads)

    assert sum(b"horse" in payload for _, payload in sent) > 100
    assert "horse" not in text


@pytest.mark.parametrize(("state", "version"), CASES)
def test_of_other_strings_only_those_in_env_and_headers_are_masked(state, version):
    masked = set()
    for _, payload in messages(state, version, "plain text"):
        masked |= set(changed(json.loads(payload), json.loads(mask(payload))))

    assert {path[0] for path in masked} == {"env", "headers"}


def changed(before: Any, after: Any, path: tuple[str, ...] = ()) -> Any:
    """The last names on the way to each string that is different."""
    if isinstance(before, dict):
        assert before.keys() == after.keys()
        for name in before:
            yield from changed(before[name], after[name], (*path, name)[-2:])
    elif isinstance(before, list):
        for one, other in zip(before, after, strict=True):
            yield from changed(one, other, path)
    elif before != after:
        assert after == "***"
        yield path


@pytest.mark.parametrize("method", ["authenticate", "auth/login"])
@pytest.mark.parametrize("payloads", ["full", "head"])
def test_everything_but_names_is_masked_in_an_authentication(tmp_path, method, payloads):
    params = {"methodId": "login", "code": "horse", "_meta": {"x": ["horse"], "y": "x" * 600}}

    text = traced(tmp_path / "trace", [(method, json.dumps(params).encode())], payloads)

    assert "horse" not in text


def test_a_cut_payload_is_masked(known_secret):
    whole = json.dumps({"env": [{"name": "A", "value": "horse-battery"}], "x": KNOWN}).encode()
    for length in range(whole.index(b"horse") + 1, len(whole)):
        assert b"horse" not in mask(whole[:length])[: length - len(KNOWN)]


@pytest.mark.parametrize("form", ["github", "openai", "aws"])
def test_a_secret_with_the_form_of_another_one_inside_is_masked_to_its_end(
    tmp_path, known_secret, form
):
    secret = f"lake-{FORMS[form]}+wren/otter+finch"
    masking.register_secrets([secret])

    text = traced(tmp_path / "trace", [("x", json.dumps({"a": f"is {secret}, yes"}).encode())])

    assert [each for each in ("lake", FORMS[form], "wren", "otter", "finch") if each in text] == []
    assert f'{{"a": "is {MASK}, yes"}}' in text


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_in_json_that_a_component_prints_is_masked(known_secret, ascii_only):
    masking.register_secrets(['horse"é\\battery'])
    printed = json.dumps({"x": 'horse"é\\battery'}, ensure_ascii=ascii_only)

    assert redact(printed) == '{"x": "***"}'


def test_log_events_stderr_names_places_and_errors_are_masked(tmp_path, known_secret):
    file = TraceFile(tmp_path / "trace")
    recorder = file.recorder(f"chain {KNOWN}")
    recorder.attach([])
    port = traced_port(recorder, f"name {KNOWN}", "agent")
    port.notify(f"x/{KNOWN}", b'{"a":"%b"}' % KNOWN.encode())
    token = current_recorder.set(recorder)
    log = get_logger(component=f"component {KNOWN}")
    log.info("stderr", line=f"TOKEN=horse-battery {FORMS['github']}")
    log.info(f"event {KNOWN}", error=f"failed with {FORMS['openai']}", api_key="horse-battery")
    current_recorder.reset(token)
    recorder.end()
    file.close()

    text = (tmp_path / "trace").read_text()
    assert "horse" not in text
    assert "abcdefghij" not in text
    assert [each.masked for each in Trace.load(tmp_path / "trace").messages] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "A=1\nDB_PASSWORD=hunter2x\nB=2",
        "first \\\nDB_PASSWORD=hunter2x",
        json.dumps("A=1\nDB_PASSWORD=hunter2x\n"),
        "A=1\ndb_password=hunter2x\nB=2",
        "+db_password=hunter2x",
        "export db_password=hunter2x\r\n",
        "level=info token=hunter2x user=me",
        "level=info token='hunter2x' user=me",
        "host: x\n  password: 'hunter2x'\n",
        "deploy --password hunter2x --verbose",
        "deploy --api-key hunter2x",
        "curl -H 'X-Api-Key: hunter2x' https://host",
        "Authorization: token hunter2x",
        "Set-Cookie: session=hunter2x; Path=/",
        "curl -u ann:hunter2x https://host",
        "curl -sS \\\n  --user 'ann:hunter2x' https://host",
        'curl -H "Accept: */*" -u "ann:hunter2x" https://host | grep "a b"',
    ],
)
def test_a_secret_in_a_file_or_a_command_is_masked(text):
    payload = json.dumps({"text": text}).encode()

    masked = json.loads(mask(payload))["text"]

    assert "hunter2x" not in masked
    assert masked.replace("session=", "") == text.replace("session=", "").replace("hunter2x", "***")


@pytest.mark.parametrize(
    "text",
    [
        "password: horsebattery\n",
        "db_password=horsebattery",
        "client_secret: 'horsebattery'\n",
        "mysql --password horsebattery -e 'select 1'",
        "curl -u ann:horsebattery https://host",
        "X-Api-Key: horsebatterystaple",
    ],
)
def test_a_password_without_a_digit_is_masked(text):
    assert "horse" not in redact(text)
    assert redact(text).startswith(text[: text.index("horse")] + MASK)


def test_arguments_of_curl_are_masked():
    payload = b'{"args":["-u","ann:horse","-u","1000:1000"]}'

    assert mask(payload) == b'{"args":["-u","ann:***","-u","1000:1000"]}'


def test_text_about_secrets_is_not_masked():
    text = (
        "The token: a word. tokens = len(words); key: value; password = get_password(); "
        "sk-learn and task-force; basic authentication, see https://host/a@b; eyJ is a prefix. "
        "const token = await auth.token(); inputTokens: 512000000, the secret: sharing it. "
        "--token is required, --token-file /tmp/file1; open(path, token=token1)\n token=token1,\n"
        "{'thoughtTokens': 'thought', 'cachedReadTokens': 'cache read'} "
        " key: value123\nAuthorization: required\nApi-Key: required by the server\n"
        "password: required\nclient_secret: string\n--password prompt; curl -u ann https://host:80\n"
        "docker run -u 1000:1000 image; const { password } = props\n"
    )
    payload = json.dumps(
        {"text": text, "inputTokens": 5, "key": "theme", "_meta": {"progressToken": "p-1"}}
    ).encode()

    assert mask(payload) is payload


def test_tool_schemas_are_not_masked():
    schema = {"properties": {"token": {"type": "string", "description": "Of the service"}}}
    payload = json.dumps(schema).encode()

    assert mask(payload) is payload


def test_a_known_number_is_masked_and_the_line_can_be_read(known_secret):
    masking.register_secrets(["123456"])
    line = b'{"time":1790123456.5,"text":"pin 123456","n":12345678}\n'

    masked = mask(line, are_lines=True)

    assert json.loads(masked) == {
        "time": 1790111111.5,
        "text": "pin ***",
        "n": 11111178,
        "masked": True,
    }


def test_more_known_secrets_than_one_search_takes_are_masked(known_secret):
    secrets = [f"secret-number-{number:03}" for number in range(150)]
    masking.register_secrets(secrets)
    payload = json.dumps(secrets).encode()

    assert json.loads(mask(payload)) == ["***"] * 150


HOSTILE = [
    *("sk-", "sk--", "eyJ-", "github_pat_", "glpat-", "-----BEGIN A PRIVATE KEY", "curl -u "),
    *("token=", "token=12345678 ", "Key:", "Cookie:", "X-Token: ", "--token ", "key=-", "://a:"),
]


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_takes_time_with_the_square_of_its_length(part):
    """An agent may write it to stderr, or send it while a trace is written."""
    payload = json.dumps({"text": part * (65_536 // len(part))}).encode()
    begun = time.process_time()
    masked = mask(payload)

    assert json.loads(masked).keys() == {"text"}
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    "value",
    [
        [{"method": "authenticate"}] * 5_000,
        [{"method": "auth/login", "params": 1}] * 5_000,
        reduce(lambda inner, _: [{"env": inner}], range(200), ["a"] * 5_000),
        reduce(lambda inner, _: {"token": inner}, range(200), ["a"] * 5_000),
        ["token=12345678"] * 5_000,
    ],
    ids=["authenticate", "login", "env", "token", "numbers"],
)
def test_no_value_takes_time_with_the_square_of_its_size(value):
    payload = json.dumps({"value": value}, separators=(",", ":")).encode()
    begun = time.process_time()
    masked = mask(payload)

    assert json.loads(masked).keys() == {"value"}
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("name", ["token=", "Authorization: Bearer ", "password: "])
def test_a_long_secret_is_masked_to_its_end(name):
    """The beginning of it decides."""
    secret = "x9Kd82jLq0ZpT4/+" * 100
    assert redact(f"a {name}{secret} b") == f"a {name}*** b"
    assert redact(f"{name}{secret}") == f"{name}***"


def test_a_secret_behind_what_only_looks_like_one_is_masked():
    text = (
        "ask-sk-aaaaaaaaaaaaaaaa1 eyJ-eyJabcdefgh.eyJabcdefgh.abc sk-no-digit sk-abcdefghijklmnop1"
    )
    assert redact(text) == "ask-*** *** sk-no-digit ***"


def test_a_name_at_the_end_of_a_secret_value_has_its_own():
    assert redact("Cookie: a1b2c3d4e5f6g7Cookie: a1b2c3d4e5f6g7") == "Cookie: *** ***"


def test_a_variable_with_a_secret_is_taken_once_and_leaves_the_environment():
    program = (
        "import os; from conductor.secrets.masking import take_secret\n"
        "print(take_secret('X') == 'pässword', 'X' in os.environ, take_secret('X'),"
        " 'pässword'.encode() in open('/proc/self/environ', 'rb').read())"
    )
    env = {**os.environ, "X": "pässword"}

    told = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)

    assert told.stdout.split() == ["True", "False", "None", "False"], told.stderr
