"""`wrap` without a client, in a terminal or with other input than JSON-RPC: the agent alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cli.conftest import AGENT, COMMAND, PATIENCE

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
LOGIN = """
import os, sys
print("alone", os.getpid(), sys.argv[1:], sys.stdin.isatty(), os.environ.get("TOKEN"), flush=True)
print("read", input("code? "))
sys.exit(7)
"""


def wrap(*agent, chain="--use", value="usage"):
    return ["wrap", chain, value, "--", *agent]


@pytest.mark.slow
def test_in_a_terminal_the_agent_is_this_process_with_the_arguments_of_the_login(
    terminal, monkeypatch
):
    monkeypatch.setenv("TOKEN", "t")
    shell = terminal(*wrap(sys.executable, "-c", LOGIN, "--acp", "--setup"))

    shell.wait_for("code? ")
    shell.type("1234\n")

    assert shell.exit_code() == 7
    assert f"alone {shell.pid} ['--acp', '--setup'] True t\n" in shell.seen
    assert "read 1234\n" in shell.seen


@pytest.mark.slow
def test_in_a_terminal_other_options_change_nothing(terminal):
    shell = terminal("wrap", "--on-start-failure", "error", "--", "sh", "-c", "echo alone; exit 7")

    assert shell.exit_code() == 7
    assert shell.seen == "alone\n"


@pytest.mark.parametrize("input", ["", "sk-key\n", "x" * 300_000], ids=["none", "key", "long"])
def test_the_agent_reads_an_input_that_is_not_json(run, input):
    done = run("wrap", "--", "sh", "-c", "cat; exit 7", input=input)

    assert (done.stdout, done.stderr, done.returncode) == (input, "", 7)


SIGNALLED = """
import os, signal
read = os.read

def signalled(descriptor, size):
    if descriptor == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
    return read(descriptor, size)

os.read = signalled
from conductor.cli import main
main()
"""


def test_the_signal_for_the_flight_recorder_ends_no_conductor_that_waits_for_its_client():
    words = wrap("sh", "-c", "cat; exit 7")
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, *words], input=b"hello\n", capture_output=True
    )

    assert (done.stdout, done.returncode) == (b"hello\n", 7)


def test_the_agent_reads_what_comes_later_and_may_leave_before_its_input_ends():
    with subprocess.Popen(
        [*COMMAND, *wrap("sh", "-c", "read one; read two; echo $one $two")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        process.stdin.write("two\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "one two\n"


@pytest.mark.parametrize("blank", ["", "\n \t\r\n"])
@pytest.mark.slow
def test_json_rpc_reaches_the_chain(run, blank):
    done = run(*wrap(*AGENT.split()), input=f"{blank}{json.dumps(INITIALIZE)}\n")

    result = json.loads(done.stdout)["result"]
    assert result["agentInfo"]["name"] == "test-agent"
    assert result["_meta"]["acp-conductor/handled"] == ["usage"]


def test_an_unknown_program_ends_as_in_a_shell(run, tmp_path):
    (tmp_path / "text").write_text("")
    missing, refused = run(*wrap("no-such-agent")), run(*wrap(str(tmp_path / "text")))

    assert missing.returncode == 127
    assert missing.stderr == "acp-conductor: cannot start no-such-agent: command not found\n"
    assert refused.returncode == 126
    assert refused.stderr == f"acp-conductor: cannot start {tmp_path}/text: Permission denied\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_signals_that_python_ignores_have_their_default_action(run):
    done = run(*wrap("grep", "SigIgn", "/proc/self/status"))

    assert int(done.stdout.split()[1], 16) & (1 << 12) == 0  # SIGPIPE is 13
