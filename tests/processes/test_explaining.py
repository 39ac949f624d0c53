"""`run` explains in the chat why its chain does not start, and tries again."""

import json
import os
import pty
import select
import subprocess

import pytest
from support.peers.process import CONDUCTOR, Editor, agent, chunk, proxy

ABSENT = {"name": "helper", "run": ["no-such-program"]}


@pytest.fixture
def run(start, chain_file):
    """Start `run` with a file of these components, to explain failures."""
    return lambda *components, **keys: start("run", str(chain_file(*components, **keys)))


def initialize(editor: Editor, version: int = 1):
    return editor.answer(editor.request("initialize", protocolVersion=version))["result"]


def new_session(editor: Editor):
    answer = editor.answer(editor.request("session/new", cwd="/", mcpServers=[]))
    return answer["result"]["sessionId"]


def reply(editor: Editor, session: str) -> str:
    editor.others.clear()
    answer = editor.answer(editor.prompt("hello", session))
    assert answer["result"] == {"stopReason": "end_turn"}
    return "".join(map(chunk, editor.others))


def test_a_failed_start_answers_the_prompt_with_the_error_and_its_place(run, tmp_path):
    editor = run(ABSENT, proxy("p"))

    result = initialize(editor)
    assert (result["protocolVersion"], result["agentCapabilities"]) == (1, {})
    said = reply(editor, new_session(editor))

    assert "component 'helper' did not start: command not found: no-such-program" in said
    assert f"Where: `{tmp_path}/chain.yaml:" in said
    assert "Install the program, or write its absolute path" in said
    assert "The log is what acp-conductor writes to stderr" in said
    assert f"acp-conductor check --start {tmp_path}/chain.yaml" in said
    assert editor.leave() == 3


def test_the_log_is_named_where_it_is_a_file(chain_file, start, tmp_path):
    with open(tmp_path / "log", "wb") as log:
        editor = start("run", str(chain_file(ABSENT)), stderr=log)
    initialize(editor)

    assert f"the file {tmp_path}/log" in reply(editor, new_session(editor))
    assert editor.leave() == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no such file"),
        ("version: 1\nproxies: [{use: usage, with: {tokens: x}}]\nagent: {run: x}\n", "tokens:"),
        ("version: 1\nagent: {run: [x\n", "chain.yaml:"),
    ],
)
def test_a_chain_file_that_is_wrong_or_missing_is_explained(start, tmp_path, content, told):
    path = tmp_path / "chain.yaml"
    if content is not None:
        path.write_text(content)
    editor = start("run", str(path))
    initialize(editor)
    session = new_session(editor)
    assert told in reply(editor, session)

    path.write_text(json.dumps({"version": 1, "agent": {"run": agent()}}))
    assert new_session(editor) == "s1"
    assert editor.ask("echo hello").endswith("hello")  # after a notice
    assert editor.leave() == 0


def test_a_chain_file_whose_name_is_no_unicode_is_explained(start, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.yaml")
    editor = start("run", path)
    initialize(editor)

    said = reply(editor, new_session(editor))
    assert "there is no such file" in said
    assert "make it absolute in the editor's settings" in said
    assert f"check --start {tmp_path}/caf?.yaml" in said
    assert editor.leave() == 2


def test_a_plugin_whose_error_is_no_unicode_is_explained(start, tmp_path):
    code = "from conductor.proxy import Proxy\nclass Mine(Proxy):\n    def __init__(self):\n"
    (tmp_path / "mine.py").write_text(f"{code}        raise SystemExit('caf\\udce9')\n")
    components = {"proxies": [{"use": "./mine.py:Mine"}], "agent": {"run": agent()}}
    (tmp_path / "chain.yaml").write_text(json.dumps({"version": 1, **components}))
    editor = start("run", str(tmp_path / "chain.yaml"))
    initialize(editor)

    assert "Mine cannot be made: SystemExit: caf?" in reply(editor, new_session(editor))
    assert editor.leave() == 3


@pytest.mark.fast
def test_a_chain_file_that_stays_wrong_is_exit_code_2(start, tmp_path):
    editor = start("run", str(tmp_path / "absent.yaml"))
    initialize(editor)

    assert editor.leave() == 2
    assert any("there is no such file" in line for line in editor.log)


@pytest.mark.parametrize("command", ["run", "proxy"])
def test_without_explanations_a_wrong_chain_file_is_the_error_of_initialize(
    start, tmp_path, command
):
    path = tmp_path / "chain.yaml"
    path.write_text("version: 1\nproxies: [{rnu: x}, {rnu: y}]\n")
    options = ["--on-start-failure", "error"] if command == "run" else []
    editor = start(command, *options, str(path))
    method = "initialize" if command == "run" else "proxy/initialize"

    error = editor.answer(editor.request(method, protocolVersion=1))["error"]

    assert error["message"].count("error: unknown key `rnu`") == 2
    assert len(error["data"]["problems"]) == 2
    assert editor.leave() == 2


@pytest.mark.fast
def test_a_corrected_plugin_file_is_imported_again(start, tmp_path):
    plugin, chain = tmp_path / "mine.py", tmp_path / "chain.yaml"
    code = "from conductor.proxy import Proxy\nclass Mine(Proxy):\n    def __init__(self):\n"
    plugin.write_text(f"{code}        raise TypeError('no such luck')\n")
    components = {"proxies": [{"use": "./mine.py:Mine"}], "agent": {"run": agent()}}
    chain.write_text(json.dumps({"version": 1, **components}))
    editor = start("run", str(chain))
    initialize(editor)
    assert "no such luck" in reply(editor, new_session(editor))

    plugin.write_text(f"{code}        pass  # mended, and longer than before\n")

    assert new_session(editor) == "s1"
    assert editor.leave() == 0


def test_the_agent_command_explains_with_the_flag(start):
    editor = start("agent", "--on-start-failure", "explain", "no-such-program")
    initialize(editor)

    assert "command not found" in reply(editor, new_session(editor))
    assert editor.leave() == 3


def test_a_wrong_file_at_a_terminal_ends_at_once(tmp_path):
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [*CONDUCTOR, "run", str(tmp_path / "absent.yaml")],
            stdin=theirs,
            capture_output=True,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"there is no such file" in done.stderr


def test_at_a_terminal_a_note_says_that_an_editor_is_awaited(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text("version: 1\nagent: {use: test-agent}\n")
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*CONDUCTOR, "run", str(file)], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
        )
        shown = b""
        try:
            while b"\n" not in shown:
                assert select.select([ours], [], [], 60)[0]
                shown += os.read(ours, 4096)
        finally:
            process.kill()
            stdout, _ = process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)

    assert stdout == b""
    assert shown.startswith(b"note: this waits for the messages of an editor; to ask the agent")
    assert f"`acp-conductor prompt {file} TEXT`".encode() in shown
