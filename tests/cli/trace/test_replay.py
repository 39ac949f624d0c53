"""`acp-conductor trace replay`, as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from support.peers.process import ROOT
from support.raw_json import compact

from cli.conftest import PATIENCE
from conductor.testing import Recording

pytestmark = pytest.mark.slow

REPLAY = [sys.executable, "-m", "conductor", "trace", "replay"]
PROXIES = """
from conductor.proxy import Proxy, on_prompt, on_text
from conductor.proxy.peers import text

class Shout(Proxy):
    @on_text
    async def shout(self, session, text):
        return text.upper()

class Remind(Proxy):
    @on_prompt
    async def remind(self, session, prompt, forward):
        prompt.blocks.append(text("Be kind."))
        return await forward()
"""


@pytest.fixture
def trace(run, tmp_path):
    """Record a prompt to the chain `hello.yaml`; the path of the trace."""

    def trace(text, *options):
        path = tmp_path / "t.jsonl"
        chain = ROOT / "chains" / "hello.yaml"
        result = run("prompt", *options, "--trace", path, chain, text, "--permissions", "allow")
        assert result.returncode == 0, result.stderr
        return path

    return trace


@pytest.fixture
def proxies(chain_file, tmp_path):
    """A chain of the proxies above."""
    (tmp_path / "parts.py").write_text(PROXIES)

    def proxies(*names, agent=""):
        entries = "".join(f"  - use: ./parts.py:{name}\n" for name in names)
        return chain_file(f"proxies:\n{entries}{agent}" if names else agent, "changed.yaml")

    return proxies


def agent_of(path, *options):
    argv = json.dumps([*REPLAY, str(path), "--as", "agent", *options])
    return f"agent:\n  name: recorded\n  run: {argv}\n"


def test_a_recorded_agent_answers_a_real_client_as_the_real_one_did(run, trace, chain_file):
    path = trace("say hello\nask Edit a file\nsay bye")
    chain = chain_file(agent_of(path))

    result = run("prompt", chain, "say hello\nask Edit a file\nsay bye", "--permissions", "allow")

    assert (result.returncode, result.stdout) == (0, "hello\nEdit a file: allow\nbye\n")
    assert "trace replay" not in result.stderr


def test_a_recorded_agent_tells_what_the_client_does_differently(run, trace, chain_file):
    chain = chain_file(agent_of(trace("say hello")))

    result = run("--log", "info", "prompt", chain, "say goodbye")

    assert (result.returncode, result.stdout) == (0, "hello\n")
    told = "trace replay: chain → agent: #18 session/prompt"
    assert f'{told} - prompt[0].text: "say hello"' in result.stderr
    assert f'{told} + prompt[0].text: "say goodbye"' in result.stderr


def test_a_recorded_agent_ends_with_exit_code_1_after_another_request(run, trace):
    path = trace("say hello")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    asked = [each for each in lines if each.get("receiver") == "mcp-bridge" and "params" in each]

    wire = [
        {"jsonrpc": "2.0", "id": each["n"], "method": each["method"], "params": each["params"]}
        for each in asked
        if each["type"] == "request" and each["sender"] == "usage"
    ]

    def as_client(changed=""):
        text = "".join(compact(each) + "\n" for each in wire) + changed
        return run("trace", "replay", path, "--as", "agent", input=text)

    same = as_client()
    other = as_client('{"jsonrpc": "2.0", "id": 9, "method": "session/list"}\n')

    assert (same.returncode, same.stderr) == (0, "")
    answers = [json.loads(line) for line in same.stdout.splitlines()]
    assert [each["id"] for each in answers if "id" in each] == [each["id"] for each in wire]
    assert answers[-1]["result"] == {"stopReason": "end_turn"}
    assert other.returncode == 1
    assert other.stderr == "trace replay: chain → agent: + session/list null\n"


def test_a_recorded_client_drives_the_same_agent_without_differences(run, trace):
    path = trace("say hello\nask Edit a file\nstream 40")
    chain = ROOT / "chains" / "hello.yaml"

    result = run("trace", "replay", path, "--as", "client", "--", chain)

    assert result.stdout == "54 messages equal, 0 changed, 0 only in A, 0 only in B\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_two_recordings_of_real_agents_meet(run):
    """The client of one agent's recording, and the agent of another: no deadlock, all told."""
    agent = " ".join([*REPLAY, "qwen-code", "--as", "agent"])

    result = run("trace", "replay", "opencode", "--as", "client", "--timeout", "20", "--", agent)

    assert result.returncode == 1
    assert "did not come" not in result.stdout
    assert '+ agentInfo.name: "qwen-code"' in result.stdout


@pytest.mark.fast
def test_the_same_chain_makes_no_difference(run, trace):
    path = trace("say hello\nask Edit a file\nplan a; b")

    result = run("trace", "replay", path, "--through", ROOT / "chains" / "hello.yaml")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(" messages equal, 0 changed, 0 only in A, 0 only in B\n")


def test_an_update_that_was_in_flight_when_the_client_left_makes_no_difference(run, trace):
    """The proxy before the client had not passed it on yet."""
    path = trace("say hello")
    *lines, end = path.read_text().splitlines(keepends=True)
    records = [json.loads(each) for each in lines]
    n = records[-2]["n"]
    for sender in ("test-agent", "mcp-bridge"):
        sent = [each for each in records if each["type"] == "notification"]
        last = next(each for each in reversed(sent) if each["sender"] == sender)
        n += 1
        lines.append(compact(last | {"n": n, "cause": n - 1}) + "\n")
    path.write_text("".join([*lines, end]))

    result = run("trace", "replay", path, "--through", ROOT / "chains" / "hello.yaml")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(" messages equal, 0 changed, 0 only in A, 0 only in B\n")


def test_half_a_surrogate_pair_makes_no_difference(run, trace):
    path = trace("say emoji")
    path.write_bytes(path.read_bytes().replace(b"emoji", rb"half \ud83d"))

    result = run("trace", "replay", path, "--through", ROOT / "chains" / "hello.yaml")

    assert result.returncode == 0, result.stderr
    assert " 0 changed, 0 only in A, 0 only in B" in result.stdout


def test_differences_of_a_changed_chain_are_shown_at_its_ends(run, trace, proxies, tmp_path):
    path = trace("say hello", "--cwd", tmp_path)
    chain = proxies("Shout", "Remind")

    result = run("trace", "replay", path, "--through", chain, "--trace", "new.jsonl")

    assert result.returncode == 1
    assert "- #15 available_commands_update  /usage" in result.stdout
    assert '      - update.content.text: "hello"\n      + update.content.text: "HELLO"\n' in (
        result.stdout
    )
    assert '      + prompt[1]: {"type": "text", "text": "Be kind."}\n' in result.stdout
    shown = run("trace", "show", "new.jsonl", "--method", "agent_message_chunk").stdout
    assert '"HELLO"' in shown
    assert '"hello"' in shown


def test_hops_tell_which_component_makes_the_difference(run, trace, proxies, tmp_path):
    changed = proxies("Remind", "Shout")
    path = tmp_path / "changed.jsonl"
    run("trace", "replay", trace("say hello"), "--through", changed, "--trace", path)
    parts = tmp_path / "parts.py"
    parts.write_text(parts.read_text().replace("Be kind.", "Be brief."))

    new = tmp_path / "new.jsonl"

    ends = run("trace", "replay", path, "--through", changed, "--trace", new)
    hops = run("trace", "diff", path, new)

    assert (ends.returncode, hops.returncode) == (1, 1)
    assert '+ prompt[1].text: "Be brief."' in ends.stdout
    between = hops.stdout.partition("Remind → Shout\n")[2]
    assert '+ prompt[1].text: "Be brief."' in between.partition(" → ")[0]
    assert "client → Remind" not in hops.stdout


@pytest.mark.parametrize("name", Recording.names())
def test_a_recording_of_a_real_agent_goes_through_a_chain(run, proxies, name):
    changed = run("trace", "replay", name, "--through", proxies("Shout"))
    same = run("trace", "replay", name, "--through", proxies(agent="agent: {use: test-agent}\n"))

    assert (same.returncode, changed.returncode) == (0, 1)
    assert '+ update.content.text: "HELLO."' in changed.stdout
    assert "+ prompt" not in changed.stdout


def test_ctrl_c_ends_a_replayed_agent_without_an_error():
    command = [*REPLAY, "opencode", "--as", "agent"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True) as process:
        process.stdin.write(
            '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
        )
        process.stdin.flush()
        assert '"result"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) in (0, 1)  # 1: initialize differs from the recording
        assert "Traceback" not in process.stderr.read()


def test_a_chain_that_does_not_start_is_told_with_exit_code_3(run, proxies):
    agent = run("trace", "replay", "opencode", "--as", "client", "--", "does-not-exist")
    (broken := proxies("Missing")).exists()
    through = run("trace", "replay", "opencode", "--through", broken)

    assert (agent.returncode, through.returncode) == (3, 3)
    assert "does-not-exist" in agent.stderr
    assert "Missing" in through.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["opencode"], "write either --as agent, --as client or --through"),
        (["opencode", "--as", "agent", "--through", "x.yaml"], "write either --as agent"),
        (["opencode", "--as", "client"], "--as client needs a chain file or an agent's command"),
        (["opencode", "--as", "agent", "--", "x"], "only --as client takes a chain or an agent"),
        (["nothing", "--as", "agent"], "no recording is called 'nothing'; there are: "),
        (["missing.jsonl", "--as", "agent"], "missing.jsonl: No such file or directory"),
        (["opencode", "--as", "agent", "--chain", "x"], "no chain is called 'x'"),
        (["opencode", "--through", "missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_usage_ends_with_exit_code_2(run, arguments, problem):
    result = run("trace", "replay", *arguments)

    assert result.returncode == 2
    assert problem in " ".join(result.stderr.split())
