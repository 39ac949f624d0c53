"""Which values are masked: called, or looking, like secrets; and nothing that garbles a log."""

import pytest

from conductor.secret_detection import looks_like_a_secret, names_a_secret, secret_parts

SECRET_NAMES = [
    "API_KEY",
    "OPENAI_API_KEY",
    "apiKey",
    "x-api-key",
    "ANTHROPIC_AUTH_TOKEN",
    "GITHUB_TOKEN",
    "GITHUB_PAT",
    "token",
    "TOKEN_2",
    "mytoken",
    "PGPASSWORD",
    "MYSQL_PWD",
    "password",
    "passphrase",
    "DB_PASS",
    "SECRET",
    "CLIENT_SECRET",
    "SECRET_VALUE",
    "AWS_SECRET_ACCESS_KEY",
    "aws_credentials",
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "SENTRY_DSN",
    "JWT",
    "ACP_CONDUCTOR_TOKENS",
    "API_KEYS",
    "SLACK_WEBHOOK",
    "--api-key",
    "OPENAI_KEY_PROD",
    "SSH_PASSCODE",
    "githubtoken1",
]

OTHER_NAMES = [
    "NODE_ENV",
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "LANG",
    "MODEL",
    "LOG_LEVEL",
    "MAX_TOKENS",
    "CONTEXT_TOKENS",
    "TOKEN_LIMIT",
    "KEY_FILE",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GOOGLE_APPLICATION_CREDENTIALS_FILE",
    "AUTH_MODE",
    "TOKEN_URL",
    "KEYBOARD",
    "XAUTHORITY",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "EDITOR",
    "COMPOSE_PROJECT_NAME",
]

SECRET_VALUES = [
    "sk-ant-REDACTED",
    "ghp_0123456789abcdefABCDEF0123456789abcd",
    "github_pat_11ABC",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrs",
    "xoxb-12345-abcdefgh",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n",
    "Bearer abcdef",
    "postgres://user:pass@db/main",
    "https://abcdef@sentry.example.org/1",
    "Server=db;Password=qwerty;Port=1",
    "https://example.org/hook?token=qwerty",
    "d41d8cd98f00b204e9800998ecf8427e",
    "123e4567-e89b-12d3-a456-426614174000",
    "s3cr3t-t0ken",
    "bP2v9KxQ7mT4wZ1r",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "q3-Zt7v_Xk9Lr2",
]

OTHER_VALUES = [
    "production",
    "development",
    "debug",
    "true",
    "100000",
    "notes.sqlite",
    "/home/user/project-2024/src",
    "./data/v2",
    "~/chains/review.yaml",
    "http://localhost:3000/api/v1",
    "en_US.UTF-8",
    "gpt-4o-mini-2024-07-18",
    "claude-sonnet-4-5-20250929",
    "MyApp-Production-Server-01",
    "x86_64-linux-gnu",
    "python3.11",
    "node20-alpine3",
    "2026-11-22T16:00:00Z",
    "a sentence of several words",
    "us-east-1,eu-west-2",
    "",
]


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
