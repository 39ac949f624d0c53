from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from conductor.adapters.known_clients import EDITOR_REQUESTS
from conductor.cli.install.editors import EDITORS
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


def test_an_unknown_name_is_answered_with_those_that_are_known():
    result = given("emacs")

    assert result.exit_code == 2
    assert "emacs is none of zed, vscode, acpx, codecompanion" in result.output


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("emacs", "Did you mean agent-shell?"),
        ("neovim", "Did you mean codecompanion or avante?"),
        (
            "jetbrains",
            "What jetbrains announces is not known here: save its `initialize` in a file",
        ),
    ],
)
def test_names_of_install_are_known(name, hint):
    assert hint in " ".join(given(name).output.split())


def test_every_editor_of_install_is_explained():
    for name in EDITORS:
        assert name in EDITOR_REQUESTS or "is not known here" in given(name).output
