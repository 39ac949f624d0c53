from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from conductor.adapters.known_clients import EDITOR_REQUESTS
from conductor.cli.tried_client import client_option

PARAMS = {"protocolVersion": 2, "capabilities": {}, "info": {"name": "x", "version": "1"}}


@click.command
@client_option
def shown(client):
    print(json.dumps([client.name, client.params]))


def given(value):
    return CliRunner().invoke(shown, ["--client", str(value)])


@pytest.mark.parametrize("name", EDITOR_REQUESTS)
def test_an_editor(name):
    assert json.loads(given(name).output) == [name, EDITOR_REQUESTS[name]]


@pytest.mark.parametrize(
    "written", [PARAMS, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}]
)
def test_a_file_with_the_request_or_its_params(tmp_path, written):
    (tmp_path / "client.json").write_text(json.dumps(written))

    assert json.loads(given(tmp_path / "client.json").output)[1] == PARAMS


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"method": "initialize"}', "\xff", '{"protocolVersion": true}']
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "other").write_bytes(text.encode("latin-1"))

    result = given(tmp_path / "other")

    assert result.exit_code == 2
    assert "has no `initialize` request, nor the params of one, as JSON" in result.output


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("emacs", "Did you mean 'agent-shell'?"),
        ("neovim", "Did you mean 'codecompanion' or 'avante'?"),
        ("zedd", "Did you mean 'zed'?"),
        ("intellij", "A file with the `initialize` of a client is written ./intellij"),
    ],
)
def test_an_unknown_name_is_answered_with_those_that_are_known(name, hint):
    result = given(name)

    assert result.exit_code == 2
    shown = " ".join(result.output.split())
    assert "is not one of 'zed', 'vscode', 'acpx', 'codecompanion'" in shown
    assert hint in shown
