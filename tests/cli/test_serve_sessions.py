"""`serve --sessions`: usage errors are reported before it listens."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner

from conductor.cli.command_group import acp_conductor

REDIS = "redis://127.0.0.1:6379/0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--sessions", "localhost:6379"], {}, "redis://HOST:PORT/DB"),
        (["--sessions", "redis://:secret-word@127.0.0.1/0"], {}, "ACP_CONDUCTOR_SESSIONS"),
        (["--sessions", REDIS, "--listen", "127.0.0.1:0"], {}, "needs --advertise"),
        (["--listen", "unix:/tmp/x"], {"ACP_CONDUCTOR_SESSIONS": REDIS}, "needs --advertise"),
        (["--sessions", REDIS, "--advertise", "node-a:8765"], {}, "--advertise: expected http://"),
        (["--advertise", "http://node-a:8765"], {}, "--advertise needs --sessions"),
    ],
)
def test_a_usage_error_is_reported(tmp_path, monkeypatch, arguments, environment, said):
    result = serve(tmp_path, monkeypatch, arguments, environment)

    assert result.exit_code == 2
    assert said in result.output
    assert "secret-word" not in result.output


def test_without_coredis_the_error_names_the_extra(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "coredis" else find(name)
    )

    result = serve(tmp_path, monkeypatch, ["--sessions", REDIS], {})

    assert result.exit_code == 2
    assert "pip install 'acp-conductor[sessions]'" in result.output


def serve(tmp_path, monkeypatch, arguments, environment):
    monkeypatch.delenv("ACP_CONDUCTOR_SESSIONS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chain = tmp_path / "chain.yaml"
    chain.write_text("version: 1\nagent: {use: test-agent}\n")
    return CliRunner().invoke(acp_conductor, ["serve", str(chain), *arguments])
