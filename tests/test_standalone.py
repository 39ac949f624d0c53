"""One proxy class in the conductor's process, isolated, and as a stand-alone program."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.raw_json import compact, dumps

PROXY = '''
"""A third-party proxy."""
import attrs

from conductor.proxy import Proxy, on, run
from conductor.proxy.peers import text
from conductor.schema.v1 import PromptRequest

print("stray output of an import")


@attrs.define
class Mark(Proxy):
    """Put a mark before every prompt."""

    mark: str
    count: int = 1

    @on("session/prompt")
    async def put(self, request: PromptRequest, forward):
        print("stray output of a handler")
        request.prompt[0:0] = [text(self.mark)] * self.count
        return await forward(request)


if __name__ == "__main__":
    run(Mark)
'''
PYTHON = sys.executable


@pytest.fixture
def start(tmp_path):
    """Run a program in a directory that holds `mark.py`, with these messages on its stdin."""
    (tmp_path / "mark.py").write_text(PROXY)

    def start(*command, files=None, messages=()):
        for name, content in (files or {}).items():
            (tmp_path / name).write_text(content)
        with subprocess.Popen(
            [PYTHON, *command],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            lines = [line for message in messages for line in exchange(program, message)]
            stdout, stderr = program.communicate(timeout=60)
            return subprocess.CompletedProcess(
                command, program.returncode, "".join(lines) + stdout, stderr
            )

    return start


def exchange(program, message):
    """Send a request; return the lines up to its response. stdin stays open: after EOF, a chain
    that is still starting would get only `stop_timeout`."""
    program.stdin.write(compact({"jsonrpc": "2.0", **message}) + "\n")
    program.stdin.flush()
    lines = []
    while not lines or json.loads(lines[-1]).get("id") != message["id"]:
        lines.append(program.stdout.readline())
        assert lines[-1], program.stderr.read()
    return lines


def sent(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def chain(more):
    return f"version: 1\nproxies:\n  - use: ./mark.py:Mark\n{more}"


@pytest.mark.slow
def test_in_process_isolated_and_stand_alone_in_one_chain(start, tmp_path):
    patient = "    start_timeout: 5m\n"  # seven interpreters start one inside the other
    components = [
        [PYTHON, "-m", "conductor", "proxy", "inside.yaml"],
        [PYTHON, "-m", "conductor", "proxy", "isolated.yaml"],
        [PYTHON, "mark.py", "--mark", "alone"],
    ]
    counted = "    isolate: true\n    with: {session_ids: counted}\n"
    agent = f"agent:\n    use: test-agent\n{counted}{patient}"
    proxies = "".join(f"  - run: {json.dumps(command)}\n{patient}" for command in components)
    files = {
        "inside.yaml": chain("    with: {mark: inside}\n"),
        "isolated.yaml": chain(
            "    isolate: true\n    with: {mark: isolated, count: 2}\n" + patient
        ),
        "outer.yaml": f"version: 1\nproxies:\n{proxies}{agent}",
    }
    initialize = {"protocolVersion": 1, "clientCapabilities": {}}
    prompt = {"sessionId": "session-1", "prompt": [{"type": "text", "text": "echo"}]}

    result = start(
        *("-m", "conductor", "run", "outer.yaml"),
        files=files,
        messages=[
            {"id": 0, "method": "initialize", "params": initialize},
            {"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
            {"id": 2, "method": "session/prompt", "params": prompt},
        ],
    )

    messages = sent(result)
    assert [message["id"] for message in messages if "id" in message] == [0, 1, 2], result.stderr
    said = "".join(
        message["params"]["update"]["content"]["text"]
        for message in messages
        if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk"
    )
    texts = [block["text"] for block in json.loads(said)]
    assert texts == ["alone", "isolated", "isolated", "inside", "echo"]


@pytest.mark.parametrize("dialect", ["proxy", pytest.param("_proxy", marks=pytest.mark.slow)])
def test_a_stand_alone_proxy_speaks_the_dialect_of_its_conductor(tmp_path, dialect):
    # A conductor skips lines that a module prints before it calls `run`; this test does not.
    (tmp_path / "mark.py").write_text(PROXY.replace('print("stray output of an import")', ""))
    command = [PYTHON, tmp_path / "mark.py", "--mark", "m"]
    capabilities = {"protocolVersion": 1, "agentCapabilities": {}}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:

        def say(message):
            program.stdin.write(dumps({"jsonrpc": "2.0", **message}) + b"\n")
            program.stdin.flush()
            return json.loads(program.stdout.readline() or "null")

        asked = say({"id": 1, "method": f"{dialect}/initialize", "params": {"protocolVersion": 1}})
        answered = say({"id": asked["id"], "result": capabilities})
        program.stdin.close()

        assert program.wait(30) == 0
    assert asked["method"] == f"{dialect}/successor"
    assert asked["params"] == {"method": "initialize", "params": {"protocolVersion": 1}}
    assert answered == {"jsonrpc": "2.0", "id": 1, "result": capabilities}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "Mark: the option `mark` is missing"),
        (["--mark", "m", "--count", "many"], "count: expected a whole number, found `many`"),
        (["--marc=m"], "Mark: unknown option `marc`"),
        (["m"], "unexpected argument 'm': options are given as --name value"),
    ],
)
def test_wrong_options_of_a_program(start, arguments, problem):
    result = start("mark.py", *arguments)

    assert (result.returncode, problem in result.stderr) == (2, True), result.stderr


def test_a_list_is_json(start):
    text = PROXY.replace("    mark: str\n", "    mark: list[str]\n")

    wrong = start("mark.py", "--mark", "[a b]", files={"mark.py": text})
    assert wrong.returncode == 2
    assert 'mark: not valid JSON, such as `["a", "b"]`' in wrong.stderr
    assert start("mark.py", "--mark", '["a b"]', files={"mark.py": text}).returncode == 0


def test_a_program_describes_itself(start):
    result = start("mark.py", "--help")

    assert result.stdout.splitlines()[1:] == [
        "mark.py: Put a mark before every prompt.",
        "",
        "Speaks the Agent Client Protocol on stdin and stdout; a conductor starts it.",
        "",
        "Options, as --name value or in ACP_PROXY_OPTIONS (a JSON object):",
        "  --mark str (required)",
        "  --count int",
    ]
