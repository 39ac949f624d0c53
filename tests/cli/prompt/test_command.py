"""`acp-conductor prompt`, from the outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from cli.conftest import AGENT, COMMAND, PASS_PROXY, PATIENCE, STUBBORN
from conductor.chain.start_failure import REMEDIES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
HELLO = ROOT / "chains" / "hello.yaml"


@pytest.mark.fast
def test_the_first_command_of_the_readme(run):
    result = run("prompt", HELLO, "say hello")

    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


def test_it_needs_no_network_and_no_home(tmp_path):
    result = subprocess.run(
        [*COMMAND, "prompt", HELLO, "say hello"],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


def test_components_follow_two_dashes(run):
    proxy = f"python {PASS_PROXY} --dialect _proxy --tag --name p"

    result = run("prompt", "--", proxy, AGENT, "hello")

    assert (result.returncode, result.stdout) == (0, "p>You said: [p]hello\n")


def test_a_text_that_begins_with_a_dash_follows_two_dashes(run):
    result = run("prompt", HELLO, "--", "--version?")

    assert result.stdout == "You said: --version?\n"


def test_the_text_is_read_from_stdin(run):
    result = run("prompt", HELLO, "-", input="say one\nsay two\n")

    assert result.stdout == "onetwo\n"


def test_tool_calls_plans_and_modes_are_lines_on_stderr(run):
    text = "say before\ntool Look around\nplan a; b\nmode code\nsay after"

    result = run("prompt", HELLO, text)

    assert result.stdout == "before\nafter\n"
    assert result.stderr.splitlines() == [
        "tool: Look around (other)",
        "tool: Look around: completed",
        "plan: [>] a  [ ] b",
        "plan: [x] a  [>] b",
        "plan: [x] a  [x] b",
        "mode: code",
    ]


@pytest.mark.parametrize(
    ("options", "said"), [([], "reject"), (["--permissions", "allow"], "allow")], ids=str
)
def test_permissions_without_a_terminal(run, options, said):
    result = run("prompt", *options, HELLO, "ask Edit")

    assert result.stdout == f"Edit: {said}\n"
    assert f"permission: Edit: {said.capitalize()}" in result.stderr


def test_asking_needs_a_terminal(tmp_path):
    result = subprocess.run(
        [*COMMAND, "prompt", "--permissions", "ask", HELLO, "ask"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        timeout=PATIENCE,
    )

    assert result.returncode == 2
    assert "needs a terminal" in result.stderr


@pytest.mark.fast
def test_permission_is_asked_on_a_terminal(terminal):
    shell = terminal("prompt", HELLO, "ask Edit config")

    shell.wait_for("Which? [1-3] ")
    shell.type("7\n")
    shell.wait_for(
        "Which? [1-3] 7\nno option '7': type a number; Ctrl-C cancels the turn\nWhich? [1-3] "
    )
    shell.type("2\n")

    assert shell.exit_code() == 0
    assert "The agent asks: Edit config\n  1  Allow\n  2  Always allow\n  3  Reject\n" in shell.seen
    assert "Edit config: always\n" in shell.seen


def test_eof_on_the_terminal_denies_permission(terminal):
    shell = terminal("prompt", HELLO, "ask Edit")

    shell.wait_for("Which?")
    shell.type("\x04")

    assert shell.exit_code() == 0
    assert "Edit: cancelled" in shell.seen


def test_ctrl_c_at_a_question_cancels_the_turn(terminal):
    shell = terminal("prompt", HELLO, "ask Edit")

    shell.wait_for("Which?")
    shell.type("\x03")

    assert shell.exit_code() == 130
    assert "stopped: cancelled" in shell.seen
    assert not re.search(r"Which.*cancelling", shell.seen)


def test_one_json_object_per_event(run):
    result = run("prompt", "--json", "--permissions", "deny", HELLO, "say hi\nask Edit")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in events] == [
        "initialized",
        "session",
        "update",  # the commands of the proxies
        "update",  # with those of the agent
        "update",
        "update",
        "permission",
        "update",
        "update",
        "answer",
    ]
    assert events[1]["result"]["sessionId"].startswith("session-1-")
    assert events[4]["update"] == {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "hi"},
    }
    assert events[6]["outcome"] == {"outcome": "selected", "optionId": "reject"}
    assert events[-1] == {"type": "answer", "result": {"stopReason": "end_turn"}}


@pytest.mark.fast
def test_an_error_is_an_event_too(run):
    result = run("prompt", "--json", HELLO, "fail -32001 out of tea")

    assert result.returncode == 1
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "type": "error",
        "step": "session/prompt",
        "error": {"code": -32001, "message": "out of tea"},
    }


@pytest.mark.parametrize(
    ("reason", "code"),
    [("max_tokens", 11), ("max_turn_requests", 12), ("cancelled", 13), ("_of_an_extension", 14)],
)
def test_another_stop_reason_is_shown(run, reason, code):
    result = run("prompt", HELLO, f"stop {reason}")

    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr == f"stopped: {reason}\n"


def test_several_prompts_are_turns_of_one_session(run):
    result = run("prompt", "--json", HELLO, "say one", "say two")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in events].count("session") == 1
    assert [event["result"] for event in events if event["type"] == "answer"] == [
        {"stopReason": "end_turn"},
        {"stopReason": "end_turn"},
    ]


@pytest.mark.fast
def test_a_turn_that_does_not_end_well_is_the_last_one(run):
    result = run("prompt", "--protocol", "2", HELLO, "say one", "stop refusal", "say three")

    assert (result.returncode, result.stdout) == (10, "one\n")
    assert result.stderr == "stopped: refusal\n"


def test_a_session_is_continued(run, chain_file, tmp_path):
    agent = Path(__file__).parents[2] / "support" / "components" / "durable_agent.py"
    (tmp_path / "kept").mkdir()
    options = f"{{directory: {tmp_path}/kept, node: here}}"
    path = chain_file(f"agent: {{use: '{agent}:KeepingAgent', with: {options}}}\n")

    first = run("prompt", "--json", path, "one")
    events = [json.loads(line) for line in first.stdout.splitlines()]
    (session,) = [e["sessionId"] for e in events if e["type"] == "session"]
    second = run("prompt", "--session", session, path, "two")

    assert second.returncode == 0
    assert "one" in second.stdout


def test_files_are_sent_with_the_first_prompt(run, tmp_path):
    (tmp_path / "a.txt").write_text("inside")

    result = run("prompt", "--file", "a.txt", HELLO, "echo", "echo")

    first, second = result.stdout.splitlines()
    resource = {"uri": f"file://{tmp_path}/a.txt", "mimeType": "text/plain", "text": "inside"}
    assert {"type": "resource", "resource": resource} in json.loads(first)
    assert "inside" not in second


@pytest.mark.fast
def test_piped_input_is_the_prompt(run):
    result = run("prompt", HELLO, input="say piped")

    assert (result.returncode, result.stdout) == (0, "piped\n")


# -- files -----------------------------------------------------------------------------------------


def not_announced(capability):
    text = f"the client does not announce the capability {capability}"
    return f"Method not found: {text} (-32601)"


def test_files_are_not_served_unless_asked_for(run, tmp_path):
    (tmp_path / "a.txt").write_text("secret")

    result = run("prompt", HELLO, "read a.txt")

    assert result.stdout == f"cannot read a.txt: {not_announced('fs.readTextFile')}\n"


@pytest.mark.fast
def test_files_below_the_working_directory_are_served(run, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.txt").write_text("one\ntwo\nthree\n")
    text = "read a.txt 2 1\nread ../b.txt\nwrite c.txt x"

    result = run("prompt", "--fs", "read", "--cwd", inside, HELLO, text)

    assert result.stdout.splitlines() == [
        "two",
        f"cannot read ../b.txt: {inside}/../b.txt is outside of {inside} (-32602)",
        f"cannot write c.txt: {not_announced('fs.writeTextFile')}",
    ]


def test_files_are_written_if_asked_for(run, tmp_path):
    result = run("prompt", "--fs", "write", HELLO, "write new/c.txt some text")

    assert result.stdout == "wrote new/c.txt\n"
    assert (tmp_path / "new" / "c.txt").read_text() == "some text"


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([HELLO], "the prompt is empty"),
        (["claude", "hello"], "commands of components come behind `--`"),
        (["context", "hello"], "`use: context` in a chain file"),
        ([HELLO, "--file", "missing", "hello"], "missing does not exist"),
        ([HELLO, " "], "the prompt is empty"),
        (["missing.yaml", "hello"], "there is no such file"),
        (["--", "hello"], "a prompt needs a chain and a text; see --help"),
    ],
    ids=str,
)
def test_wrong_usage(run, arguments, problem):
    result = run("prompt", *arguments)

    assert result.returncode == 2
    assert problem in result.stderr


def test_the_name_of_a_proxy_in_place_of_a_command_is_explained(run):
    result = run("prompt", "--", "context", AGENT, "hello")

    assert result.returncode == 3
    assert "there is no program context; `context` is a ready-made component" in result.stderr
    assert "Install the program" not in result.stderr


def test_a_project_adds_its_proxies_as_with_run(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    file = project / ".acp-conductor.yaml"
    file.write_text("version: 1\nproxies:\n  - {use: system_prompt, with: {text: Be brief.}}\n")
    untrusted = run("prompt", HELLO, "hello", "--cwd", project)
    assert f"{file} is not trusted yet" in untrusted.stderr
    assert run("trust", project, "--yes").returncode == 0

    with_it = run("prompt", HELLO, "hello", "--cwd", project)
    alone = run("prompt", HELLO, "hello", "--cwd", project, "--no-project")

    assert (with_it.returncode, with_it.stdout) == (0, "You said: hello\n")
    assert with_it.stderr == f"project: {file}\n"
    assert alone.stderr == ""


def test_a_chain_without_an_agent(run, chain_file):
    result = run("prompt", chain_file("proxies: [{run: x}]\n"), "hello")

    assert result.returncode == 2
    assert "no `agent:`" in result.stderr


@pytest.mark.fast
def test_a_component_that_does_not_start(run, chain_file):
    path = chain_file("agent:\n  name: broken\n  run: [sh, -c, 'echo the reason >&2; exit 7']\n")

    result = run("--log", "off", "prompt", path, "hello")

    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.splitlines() == [
        "error: initialize: component 'broken' did not start: it exited with status 7 (-32603)",
        f"  in {path}:4:9",
        "  command: sh -c echo the reason >&2; exit 7",
        "  stderr: the reason",
        f"  try: {REMEDIES['it exited with']}",
    ]


def test_a_failed_start_is_shown_once_with_remedies(run, chain_file, tmp_path):
    (tmp_path / "mine.py").write_text("import attrs\nimport not_there_at_all\n")
    path = chain_file(
        "proxies:\n  - use: context\n    with: {fils: [a]}\n  - use: ./mine.py:Mine\n"
        "agent: {use: test-agent}\n"
    )

    result = run("prompt", path, "hello")

    assert result.returncode == 3
    shown = result.stderr.splitlines()
    assert shown[:6] == [
        "error: initialize: component 'context' did not start: its options are wrong (-32603)",
        f"  {path}:4:12: error: unknown option `fils`",
        "     |     with: {fils: [a]}",
        "     |            ^^^^",
        "  help: did you mean `files`?",
        f"  component 'Mine' did not start: {tmp_path}/mine.py cannot be imported: "
        "ModuleNotFoundError: No module named 'not_there_at_all' (mine.py, line 2)",
    ]
    assert shown[-1].startswith("  try: Install the module where acp-conductor is installed")
    assert "chain failed to start" not in result.stderr


def test_an_agent_that_crashes(run):
    result = run("--log", "off", "prompt", "--", AGENT, "say bye\nlog a hint\nexit 4")

    assert (result.returncode, result.stdout) == (1, "bye\n")
    assert "exited with status 4" in result.stderr
    assert "stderr: a hint" in result.stderr


def test_log_messages_is_shown_and_the_stderr_of_components_is_not(run, chain_file):
    path = chain_file(f"proxies: [{{use: log_messages}}]\nagent: {{run: {AGENT.split()}}}\n")

    unasked = run("prompt", path, "log noise\nsay hello")
    asked = run("--log", "info", "prompt", path, "log noise\nsay hello")

    assert unasked.stdout == asked.stdout == "hello\n"
    assert "method=session/prompt" in unasked.stderr
    assert "noise" not in unasked.stderr
    assert "line=noise" in asked.stderr


def test_an_exception_of_a_plugin_is_told_with_its_component(run, chain_file, tmp_path):
    (tmp_path / "broken.py").write_text(
        "from conductor.proxy import Proxy, on_prompt\n"
        "class Broken(Proxy):\n"
        "    @on_prompt\n"
        "    async def look(self, session, prompt, forward):\n"
        "        return {}['missing']\n"
    )
    path = chain_file("proxies: [{use: ./broken.py:Broken}]\nagent: {use: test-agent}\n")

    result = run("--log", "off", "prompt", path, "say hello")

    assert result.returncode == 1
    why = "Broken failed in on_prompt: KeyError: 'missing' (broken.py:5)"
    assert result.stderr.splitlines() == [f"error: [acp-conductor] {why}"]


def test_a_handler_that_fails_makes_prompt_fail_and_is_in_the_log_after_the_conversation(
    run, chain_file, tmp_path
):
    (tmp_path / "exc.py").write_text(
        "from conductor.proxy import Proxy, on_tool_start\n"
        "class Exc(Proxy):\n"
        "    @on_tool_start\n"
        "    async def look(self, session, call):\n"
        "        return {}['missing']\n"
    )
    path = chain_file("proxies: [{use: ./exc.py:Exc}]\nagent: {use: test-agent}\n")

    result = run("prompt", path, "tool a\ntool b\nsay hello", "say not sent")

    assert (result.returncode, result.stdout) == (1, "hello\n")
    lines = result.stderr.splitlines()
    told = "error: [acp-conductor] Exc failed in on_tool_start: KeyError: 'missing' (exc.py:5)"
    assert lines.count(told) == 1
    [log] = [n for n, line in enumerate(lines) if "] handler failed" in line]
    assert lines[log + 1] == "Traceback (most recent call last):"
    assert log > max(n for n, line in enumerate(lines) if line.startswith("tool: "))
    assert result.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "    @on_session_end\n"
            "    async def end(self, session):\n"
            "        return {}['missing']\n",
            "Exc failed in on_session_end: KeyError: 'missing' (exc.py:6)",
        ),
        (
            "    @on_session\n    async def begin(self, session):\n        return {}['missing']\n",
            "Exc failed in on_session: KeyError: 'missing' (exc.py:6)",
        ),
        (
            "    @asynccontextmanager\n"
            "    async def lifespan(self):\n"
            "        yield\n"
            "        raise OSError('disk')\n",
            "Exc failed in lifespan: OSError: disk (exc.py:7)",
        ),
    ],
)
def test_what_fails_before_or_after_the_turns_makes_prompt_fail(
    run, chain_file, tmp_path, body, told
):
    (tmp_path / "exc.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from conductor.proxy import Proxy, on_session, on_session_end\n"
        f"class Exc(Proxy):\n{body}"
    )
    path = chain_file("proxies: [{use: ./exc.py:Exc}]\nagent: {use: test-agent}\n")

    result = run("--log", "off", "prompt", path, "say hello")

    assert (result.returncode, result.stdout) == (1, "hello\n")
    assert result.stderr == f"error: [acp-conductor] {told}\n"


def test_what_a_plugin_prints_is_not_part_of_the_answer(run, chain_file, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import attrs\n"
        "from conductor.proxy import Proxy, on\n"
        "@attrs.define\n"
        "class Noisy(Proxy):\n"
        "    @on('session/prompt')\n"
        "    async def noise(self, params: dict, forward):\n"
        "        print('a stray print', flush=True)\n"
        "        return await forward(params)\n"
    )
    path = chain_file("proxies: [{use: ./noisy.py:Noisy}]\nagent: {use: test-agent}\n")

    result = run("prompt", path, "say hello")

    assert (result.stdout, result.stderr) == ("hello\n", "a stray print\n")


def test_a_closed_stdout_ends_the_prompt(tmp_path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    program = subprocess.Popen(
        [*COMMAND, "prompt", HELLO, "stream 100000"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    os.close(write_end)
    _, stderr = program.communicate(timeout=PATIENCE)

    assert (program.returncode, stderr) == (128 + signal.SIGPIPE, "")


# -- signals ---------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path):
    """A prompt whose turn has begun: it has said "waiting"."""
    programs = []

    def start(*arguments):
        program = subprocess.Popen(
            [*COMMAND, "--log", "off", "prompt", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        programs.append(program)
        assert program.stdout.read(7) == "waiting"
        return program

    yield start
    for program in programs:
        program.kill()
        program.communicate()


@pytest.mark.fast
def test_an_interrupt_cancels_the_turn(started):
    program = started("--", AGENT, "say waiting\nwait")

    program.send_signal(signal.SIGINT)
    stdout, stderr = program.communicate(timeout=PATIENCE)

    assert (program.returncode, stdout) == (130, "\n")
    assert stderr.splitlines()[-1] == "stopped: cancelled"


def test_a_second_interrupt_does_not_wait_for_the_agent(started, chain_file):
    program = started("--", STUBBORN, "wait")

    program.send_signal(signal.SIGINT)
    assert program.stderr.readline().startswith("cancelling")
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == 130


def test_termination_ends_the_chain_in_order(started):
    program = started("--", AGENT, "say waiting\nwait")

    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=PATIENCE)

    assert program.returncode == 143


def test_an_interrupt_before_the_agent_has_started_says_what_happens(tmp_path, chain_file):
    (tmp_path / "begun.py").write_text(
        "import sys\n"
        "from contextlib import asynccontextmanager\n"
        "from conductor.proxy import Proxy\n"
        "class Begun(Proxy):\n"
        "    @asynccontextmanager\n"
        "    async def lifespan(self):\n"
        "        print('begun', file=sys.stderr, flush=True)\n"
        "        yield\n"
    )
    path = chain_file("proxies: [{use: ./begun.py:Begun}]\nagent: {run: [sleep, '60']}\n")
    program = subprocess.Popen(
        [*COMMAND, "prompt", path, "x"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert "begun" in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        assert program.stderr.readline() == "ending the chain; press again to kill it\n"
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=PATIENCE)
    assert program.returncode == 130
