"""Usage errors as a client on stdio gets them."""

from __future__ import annotations

import json
import subprocess

import pytest
from support.raw_json import compact

from cli.conftest import COMMAND, PATIENCE

ERROR = ["--on-start-failure", "error"]
WRONG = "acp-conductor was started with wrong arguments: "


def lines(*messages):
    return "".join(compact({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


def initialize(method="initialize"):
    return {"id": 1, "method": method, "params": {"protocolVersion": 1}}


def answers(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["agent", "say 'x"], 'cannot split "say \'x" into words: No closing quotation'),
        (["agent", "x", "chain.yaml"], "`acp-conductor run chain.yaml` starts a chain file"),
        (["agent"], "Missing argument '[PROXY]... AGENT'."),
        (["agent", '{"command": 1}'], "wrong form"),
        (["agent", "--bogus", "x"], "No such option '--bogus'."),
        (["--lgo", "debug", "agent", "x"], "No such option '--lgo'."),
        (["agnet", "x"], "Did you mean 'agent'?"),
        (["claude-agent-acp"], "No such command 'claude-agent-acp'."),
        ([], "Missing command."),
        (["wrap", *ERROR, "--use", "context:{files: [a}", "--", "x"], "--use context:1:11: error:"),
        (["wrap", *ERROR, "--use", "usage", "--chain", "a", "x"], "exclude each other"),
        (["proxy", "say 'x"], "No closing quotation"),
        (["connect", "ftp://x"], "expected a URL such as"),
        (["connect", "ws://x", "--token-file", "."], "is a directory"),
        (["run", "--on-start-failure=error"], "Missing argument 'FILE'."),
    ],
)
def test_a_usage_error_is_the_response_to_initialize(run, arguments, reason):
    method = "proxy/initialize" if "proxy" in arguments else "initialize"

    done = run(*arguments, input=lines(initialize(method)))

    (answer,) = answers(done)
    assert answer["id"] == 1
    assert answer["error"]["message"].startswith(WRONG)
    assert reason in answer["error"]["message"]
    assert "Usage: acp-conductor" in answer["error"]["data"]["usage"]
    assert reason.splitlines()[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_an_option_of_all_commands_behind_one_is_told_its_place(run):
    done = run("prompt", "--log", "debug", "chain.yaml", "hi")

    assert done.returncode == 2
    place = "It is written before the command: acp-conductor --log … prompt"
    assert f"No such option '--log'. {place}" in done.stderr


@pytest.mark.parametrize(
    ("word", "help"),
    [
        (
            "review.yaml",
            "For a chain file: `run review.yaml` in an editor, or `prompt review.yaml TEXT`",
        ),
        ("today.py", "For a proxy in Python: `try today.py`."),
        ("t.jsonl", "For a trace file: `trace show t.jsonl`."),
        ("context", "`context` is a ready-made component: `use: context` in a chain file"),
        (
            "mkfifo",
            'For an agent: `wrap -- mkfifo` in an editor, or `prompt -- "mkfifo" TEXT` here.',
        ),
        ("help", "For help: `--help`, also behind a command."),
    ],
)
def test_a_first_word_that_is_no_command_is_told_the_command_for_it(run, word, help):
    done = run(word)

    assert done.returncode == 2
    assert f"No such command {word!r}. {help}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run"], "Missing argument 'FILE'."),
        (["rnu", "chain.yaml"], "Did you mean 'run'?"),
        (["agent", "--on-start-failure", "explain", "say 'x"], "No closing quotation"),
    ],
)
def test_run_explains_a_usage_error_in_the_chat(run, arguments, reason):
    session = {"sessionId": "acp-conductor-1"}
    prompt = {**session, "prompt": [{"type": "text", "text": "hi"}]}
    done = run(
        *arguments,
        input=lines(
            initialize(),
            {"id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
            {"id": 3, "method": "session/prompt", "params": prompt},
        ),
    )

    assert [answer.get("id") for answer in answers(done)] == [1, 2, None, 3]
    text = answers(done)[2]["params"]["update"]["content"]["text"]
    assert WRONG in text
    assert reason in text
    assert "Correct the arguments of `acp-conductor` in your editor's settings" in text
    assert "open a new session" not in text
    assert done.returncode == 2


def test_secrets_among_the_arguments_are_masked(run):
    mistaken = "API_TOKEN=hunter2-of-mine say 'x"

    done = run("agent", mistaken, input=lines(initialize()))

    assert "API_TOKEN=***" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_command_without_a_client_ends_at_once():
    """Its stdin is open, and says nothing."""
    with subprocess.Popen(
        [*COMMAND, "check", "--bogus"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.wait(PATIENCE) == 2
        assert process.stdout.read() == b""


def test_at_a_terminal_the_command_ends_at_once(terminal):
    assert terminal("agent", "say 'x").exit_code() == 2


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["run"], ["run", "missing.yaml"], ["wrap", "--bogus"]])
def test_without_a_client_only_the_error_is_printed(run, arguments):
    result = run(*arguments)

    assert result.returncode == 2
    assert "chain ended" not in result.stderr
