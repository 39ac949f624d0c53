"""Environment values of components are in no argument, log or error (design: invariant 9)."""

import json

import psutil
import pytest
from support.peers.process import COMPONENTS, agent, probe, proxy

SECRET = "s3cr3t-v4lue"
KEY = "API_KEY"


@pytest.fixture
def start_with_secret(start, chain_file, monkeypatch):
    """A chain whose components all have a secret, from the environment and from the file.

    Its trace, which is checked at the end, does not have it.
    """
    monkeypatch.setenv("CONDUCTOR_KEY", SECRET)
    traces = []

    def start_with_secret(written, command, *proxies):
        component = {"run": command, "env": {KEY: written}, "on_failure": "end_chain"}
        path = chain_file(component, *proxies, on_start_failure="error")
        traces.append(path.with_name("trace.jsonl"))
        return start("--log", "debug", "run", str(path), "--trace", str(traces[-1]))

    yield start_with_secret
    for trace in traces:
        records = trace.read_text()
        assert records
        assert SECRET not in records


def everything_said(editor, *messages):
    return json.dumps(messages) + "\n".join(editor.log)


@pytest.mark.fast
def test_no_process_argument_contains_the_secret(start_with_secret):
    written = "${CONDUCTOR_KEY}"
    editor = start_with_secret(written, probe(), {"run": proxy("p"), "env": {KEY: written}})
    editor.open()
    assert editor.ask(f"env {KEY}") == f"p>[p]{SECRET}"

    for process in psutil.process_iter():
        try:
            assert SECRET not in " ".join(process.cmdline())
        except psutil.Error:
            continue  # it ended

    assert editor.leave() == 0
    assert SECRET not in everything_said(editor)


@pytest.mark.parametrize("written", [SECRET, "${CONDUCTOR_KEY}"])
@pytest.mark.parametrize("command", [["no-such-program"], agent("--exit-at-start", 3)])
def test_the_error_of_a_failed_start_does_not_contain_the_secret(
    start_with_secret, written, command
):
    editor = start_with_secret(written, command)

    answer = editor.initialize()

    assert "error" in answer
    assert editor.leave() == 3
    assert SECRET not in everything_said(editor, answer)


def test_a_variable_in_an_argument_is_shown_as_it_was_written(start_with_secret):
    """The component's own argv contains it, as the chain file says; errors do not."""
    editor = start_with_secret("", ["/bin/false", "--token=${CONDUCTOR_KEY}"])

    answer = editor.initialize()

    assert answer["error"]["data"]["command"] == ["/bin/false", "--token=${CONDUCTOR_KEY}"]
    assert editor.leave() == 3
    assert SECRET not in everything_said(editor, answer)


def test_the_options_of_an_isolated_plugin_are_not_in_its_arguments(start, chain_file, monkeypatch):
    monkeypatch.setenv("CONDUCTOR_KEY", SECRET)
    tag = {
        "use": f"{COMPONENTS}/plugins.py:Tag",
        "with": {"name": "${CONDUCTOR_KEY}"},
        "isolate": True,
    }
    editor = start("--log", "debug", "run", str(chain_file(agent(), tag)))
    editor.open()
    assert editor.ask("echo hello") == f"[{SECRET}]hello"

    for process in editor.components:
        assert SECRET not in " ".join(process.cmdline())
    assert editor.leave() == 0
    assert SECRET not in everything_said(editor)


def test_a_secret_on_the_command_line_is_in_no_error(start):
    """`API_KEY=… agent` is an argument of the conductor only."""
    editor = start("--log", "debug", "agent", f"{KEY}={SECRET} /bin/false --flag")

    answer = editor.initialize()

    assert answer["error"]["data"]["command"] == ["/bin/false", "--flag"]
    assert editor.leave() == 3
    assert SECRET not in everything_said(editor, answer)
