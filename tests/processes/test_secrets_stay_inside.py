"""Invariant 9: what a component is given in its environment is in no log, error or argument."""

import json
import os

import pytest
from support.peers.process import chunk, probe

from conductor.chain.build import component_secrets
from conductor.chainfile.model import ComponentSpec, InterpolatedString
from conductor.errors import ComponentExited
from conductor.jsonrpc.messages import exception_to_error
from conductor.secrets import masking
from conductor.secrets.masking import redact, redact_value, register_secrets

SECRET = "s3cr3t-t0ken"


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(masking, "_secrets", frozenset())


@pytest.mark.fast
def test_a_secret_is_masked_in_logs_and_errors():
    register_secrets([SECRET])

    assert redact(f"Bearer {SECRET}!{SECRET}") == "Bearer ***!***"
    assert redact_value({"a": [f"x{SECRET}", 1, None], "b": (SECRET,)}) == {
        "a": ["x***", 1, None],
        "b": ["***"],
    }


def test_short_values_are_no_secrets():
    register_secrets(["1", "debug", ""])

    assert redact("1 debug") == "1 debug"


def test_of_overlapping_secrets_the_longest_is_masked():
    register_secrets(["abcdef", "abcdefghi"])

    assert redact("abcdefghi abcdef") == "*** ***"


def test_a_key_that_begins_in_a_registered_secret_is_masked_to_its_end():
    register_secrets(["lake-ghp_a1B2"])

    assert redact(f"is lake-ghp_{'a1B2' * 9}, yes") == "is ***, yes"


@pytest.mark.fast
def test_a_secret_of_several_lines_is_masked_line_by_line():
    register_secrets(["-----BEGIN KEY\n  QUJDREVGRw==\n"])

    assert redact("  QUJDREVGRw==") == "***"
    assert redact("found QUJDREVGRw== there") == "found *** there"


@pytest.mark.fast
def test_a_secret_is_masked_as_json_spells_it():
    register_secrets(['pass"wörd\\'])

    assert redact(json.dumps('pass"wörd\\')) == '"***"'
    assert redact(json.dumps('pass"wörd\\', ensure_ascii=False)) == '"***"'


def test_a_long_password_is_masked_to_its_end():
    assert redact(f"curl -u ann:x{'é' * 200} y") == "curl -u ann:*** y"
    assert redact("a \ud800 db://ann:p@ss\ud800@host") == "a \ud800 db://ann:***@host"


def test_an_error_is_masked_when_it_is_written_to_the_wire():
    register_secrets([SECRET])
    error = ComponentExited("c", f"said {SECRET}", stderr_tail=[f"key={SECRET}"], location="f:1:1")

    assert SECRET not in exception_to_error(error).decode()
    assert SECRET not in exception_to_error(RuntimeError(SECRET)).decode()


def test_environment_values_printed_by_a_component_are_masked(run_chain, monkeypatch):
    monkeypatch.setenv("OF_THE_CALLER", SECRET)
    env = {"TOKEN": "${OF_THE_CALLER}"}
    editor = run_chain({"run": probe(), "name": "agent", "env": env}, log="debug")
    editor.open()
    assert editor.ask("env TOKEN") == SECRET  # it has it, and what it says is its own

    error = editor.answer(editor.prompt(f"last using {SECRET}\\n"))["error"]

    assert error["data"]["stderr"] == ["using ***"]
    assert editor.leave() == 0
    assert "using ***" in " ".join(editor.log)
    assert SECRET not in " ".join(editor.log)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_quoted_line_of_a_chain_file_has_secrets_of_the_environment_masked(
    start, tmp_path, command
):
    """The file contains the value instead of `${API_KEY}`, beside an error."""
    path = tmp_path / "chain.yaml"
    path.write_text(
        f"version: 1\nagent: {{run: [x], env: {{API_KEY: {SECRET}}}, on_failure: no}}\n"
    )

    editor = start(command, str(path), env={**os.environ, "API_KEY": SECRET})

    told = ""
    if command == "run":  # it explains itself in the chat
        editor.answer(editor.prompt("hello", editor.open()))
        told = "".join(map(chunk, editor.others))
        editor.close_stdin()
    assert editor.wait() == 2
    editor.wait_log("1 problem")
    shown = "env: {API_KEY: ***}, on_failure: no"
    assert shown in "\n".join(editor.log)
    assert command == "check" or shown in told
    assert SECRET not in "\n".join([*editor.log, told])


def test_a_secret_of_the_conductors_environment_is_masked_in_logged_stderr(run_chain, monkeypatch):
    """The chain file does not name it: every process inherits it."""
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    editor = run_chain(probe(), log="info")
    editor.open()

    editor.ask(f"errors the token is {SECRET}\\n")

    editor.wait_log("the token is ***")
    assert editor.leave() == 0
    assert SECRET not in "\n".join(editor.log)


def logged_by(run_chain, text, **keys):
    """The log of an agent that prints a text on stderr."""
    editor = run_chain({"run": probe(), "name": "agent", **keys}, log="info")
    editor.open()
    editor.ask(f"errors the text is {text}\\n")
    line = editor.wait_log("the text is ")
    assert editor.leave() == 0
    return line


def test_values_that_are_no_secrets_are_not_masked(run_chain, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_DIRECTORY", str(tmp_path))
    env = {"NODE_ENV": "production", "DATA": "${SOME_DIRECTORY}", "API_KEY": SECRET}
    text = f"production in {tmp_path} with {SECRET}"

    line = logged_by(run_chain, text, env=env)

    assert f"production in {tmp_path} with ***" in line


@pytest.mark.parametrize("where", ["env", "inherited"])
def test_a_declared_secret_is_masked_regardless_of_name_and_value(run_chain, monkeypatch, where):
    """Neither its name nor its value would tell."""
    monkeypatch.setenv("DATABASE", "correct horse")
    env = {"DATABASE": "correct horse"} if where == "env" else {}

    line = logged_by(run_chain, "the correct horse", env=env, secrets=["DATABASE"])

    assert "the text is the ***" in line


@pytest.mark.parametrize(
    ("keys", "masks"),
    [
        ({"env": {"PLAIN": "${PLAIN_NAME}"}}, False),
        ({"env": {"SOME_TOKEN": "${PLAIN_NAME}"}}, True),
        ({"env": {"PLAIN": "prefix-${SOME_KEY}"}}, True),
        ({"env": {"PLAIN": "${PLAIN_NAME}"}, "secrets": ["PLAIN"]}, True),
    ],
)
def test_a_variable_is_a_secret_by_its_own_name_or_that_of_its_place(
    run_chain, monkeypatch, keys, masks
):
    name = "SOME_KEY" if "SOME_KEY" in str(keys) else "PLAIN_NAME"
    monkeypatch.setenv(name, "ordinary")

    line = logged_by(run_chain, "ordinary", **keys)

    assert ("the text is ***" in line) == masks


def test_secrets_in_options_and_headers_are_masked():
    spec = ComponentSpec(
        "c",
        connect="https://host/acp?token=in-query&room=lobby-one",
        headers={"Authorization": "Bearer in-header", "X-Environment": "production"},
        options={"api_key": "in-option", "deep": [{"password": "in-list"}], "tokens": "100000"},
    )

    found = component_secrets(spec, {})

    assert {"in-query", "Bearer in-header", "in-header", "in-option", "in-list"} <= set(found)
    assert not {"lobby-one", "production", "100000"} & set(found)


def test_a_variable_of_a_given_environment_is_a_secret_by_its_name():
    """A program that embeds the conductor reads chain files with an environment of its own."""
    written = {("env", "PLAIN"): InterpolatedString("${SOME_KEY}", ("ordinary",), ("SOME_KEY",))}
    spec = ComponentSpec("c", env={"PLAIN": "ordinary"}, written=written)

    assert "ordinary" in component_secrets(spec, {})
