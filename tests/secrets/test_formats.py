"""The formats and names of secrets: masked and found everywhere, and nothing that garbles a log."""

from __future__ import annotations

import json

import pytest

from conductor.chain.build import component_secrets
from conductor.chainfile.model import ComponentSpec
from conductor.jsonrpc.messages import exception_to_error
from conductor.secrets.finder import PATTERNS, SecretFinder
from conductor.secrets.formats import (
    FORMATS,
    LONG_NAMES,
    SHORT_NAMES,
    looks_like_a_secret,
    names_a_secret,
    secret_parts,
)
from conductor.secrets.masking import mask, redact

# Put together here, so that no scanner takes them for real.
EXAMPLES = {
    "anthropic-key": "sk-" + "ant-api03-" + "a1B2" * 6,
    "openai-key": "sk-" + "proj-" + "a1B2" * 6,
    "github-token": "ghp" + "_" + "a1B2" * 9,
    "gitlab-token": "glpat" + "-" + "a1B2" * 5,
    "slack-token": "xox" + "b-" + "1234567890-abc",
    "aws-key-id": "AKIA" + "ABCD1234" * 2,
    "google-key": "AIza" + "a1B2c" * 7,
    "google-oauth": "ya29" + "." + "a1B2" * 6,
    "huggingface-token": "hf" + "_" + "a1B2" * 9,
    "npm-token": "npm" + "_" + "a1B2" * 9,
    "pypi-token": "pypi" + "-" + "a1B2" * 15,
    "shopify-token": "shpat" + "_" + "a1B2" * 8,
    "linear-key": "lin_api" + "_" + "a1B2" * 10,
    "sendgrid-key": "SG" + "." + "a1B2" * 5 + "-_." + "a1B2" * 10 + "-_c",
    "digitalocean-token": "dop_v1" + "_" + "a1b2" * 16,
    "stripe-key": "sk_" + "live_" + "a1B2" * 6,
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3." + "SflKxwRJSM",
}

SECRET_NAMES = [
    *("API_KEY", "apiKey", "x-api-key", "ANTHROPIC_AUTH_TOKEN", "TOKEN_2", "mytoken"),
    *("PGPASSWORD", "MYSQL_PWD", "DB_PASS", "SECRET_VALUE", "AWS_SECRET_ACCESS_KEY"),
    *("aws_credentials", "Proxy-Authorization", "SENTRY_DSN", "ACP_CONDUCTOR_TOKENS"),
    *("API_KEYS", "--api-key", "OPENAI_KEY_PROD", "githubtoken1"),
]

OTHER_NAMES = [
    *("PATH", "PWD", "OLDPWD", "MAX_TOKENS", "CONTEXT_TOKENS", "TOKEN_LIMIT", "KEY_FILE"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GOOGLE_APPLICATION_CREDENTIALS_FILE"),
    *("AUTH_MODE", "TOKEN_URL", "KEYBOARD", "XAUTHORITY", "AWS_REGION"),
    *("AWS_ACCESS_KEY_ID", "COMPOSE_PROJECT_NAME"),
]

SECRET_VALUES = [
    *("sk-ant-REDACTED", "github_pat_11ABC", "-----BEGIN PRIVATE KEY-----\nMIIE\n"),
    *("Bearer abcdef", "postgres://user:pass@db/main"),
    *("https://abcdef@sentry.example.org/1", "Server=db;Password=qwerty;Port=1"),
    *("https://example.org/hook?token=qwerty", "d41d8cd98f00b204e9800998ecf8427e"),
    *("123e4567-e89b-12d3-a456-426614174000", "s3cr3t-t0ken", "bP2v9KxQ7mT4wZ1r"),
    *("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "q3-Zt7v_Xk9Lr2"),
]

OTHER_VALUES = [
    *("production", "development", "debug", "true", "100000", "notes.sqlite"),
    *("/home/user/project-2024/src", "./data/v2", "~/chains/review.yaml"),
    *("http://localhost:3000/api/v1", "en_US.UTF-8", "gpt-4o-mini-2024-07-18"),
    *("claude-sonnet-4-5-20250929", "MyApp-Production-Server-01", "x86_64-linux-gnu"),
    *("python3.11", "node20-alpine3", "2026-11-22T16:00:00Z"),
    *("a sentence of several words", "us-east-1,eu-west-2", ""),
]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_masked_and_found_everywhere(name):
    key = EXAMPLES[name]

    assert redact(f"a {key}, b") == "a ***, b"  # logs, reports and stderr
    assert key not in exception_to_error(RuntimeError(f"a {key}")).decode()
    assert mask(json.dumps(f"a {key}, b").encode()) == b'"a ***, b"'  # traces
    assert SecretFinder(PATTERNS, {}).redact(f"a {key}, b") == f"a [redacted:{name}:1], b"
    assert key in component_secrets(ComponentSpec("c", env={"NODE_ENV": key}), {})


@pytest.mark.parametrize("name", [*LONG_NAMES, *SHORT_NAMES])
def test_a_name_is_masked_and_found_everywhere(name):
    key = "q3-Zt7v_Xk9Lr2"
    for form in (f"my_{name}", f"MY_{name.upper()}", f"my{name.title()}"):
        assert json.loads(mask(json.dumps({form: key}).encode())) == {form: "***"}
        assert "word" in component_secrets(ComponentSpec("c", env={form: "word"}), {})
    assert redact(f"MY_{name.upper()}={key} go") == f"MY_{name.upper()}=*** go"


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_of_a_secret(name):
    assert names_a_secret(name)
    assert secret_parts(name, "production")[0] == "production"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_another_name(name):
    assert not names_a_secret(name)


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_that_is_a_secret_under_any_name(value):
    assert looks_like_a_secret(value)
    assert value in secret_parts("NODE_ENV", value)


@pytest.mark.parametrize("value", OTHER_VALUES)
def test_another_value(value):
    assert not looks_like_a_secret(value)
    assert secret_parts("NODE_ENV", value) == []


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("postgres://user:passw0rd@db/main", "passw0rd"),
        ("https://abcdef@sentry.example.org/1", "abcdef"),
        ("Server=db;Password=qwerty;Port=1", "qwerty"),
        ("Bearer abcdef", "abcdef"),
    ],
)
def test_the_password_within_a_value_is_masked_where_it_stands_alone(value, part):
    assert part in secret_parts("X", value)
