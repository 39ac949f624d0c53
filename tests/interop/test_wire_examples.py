"""The proxies of docs/examples in TypeScript and Go, in front of agents written on official SDKs.

The TypeScript proxy is type-checked and compiled: only Node 22.18 and newer run it as it is. The Go
proxy needs `go`; without it the tests are skipped, in CI they fail.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT, unavailable

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="session")
def typescript(node_peers, tmp_path_factory):
    """The command of the TypeScript proxy."""
    directory = tmp_path_factory.mktemp("typescript")
    (directory / "package.json").write_text('{"type": "module"}')
    shutil.copy(EXAMPLES / "typescript" / "add_note.ts", directory)
    os.symlink(node_peers / "node_modules", directory / "node_modules")
    options = "--strict --target es2022 --module nodenext --types node --erasableSyntaxOnly"
    compiler = node_peers / "node_modules" / "typescript" / "bin" / "tsc"
    compiled = subprocess.run(
        ["node", str(compiler), *options.split(), "add_note.ts"],
        cwd=directory,
        capture_output=True,
        text=True,
    )
    assert compiled.returncode == 0, compiled.stdout
    return ["node", str(directory / "add_note.js")]


@pytest.fixture(scope="session")
def go(tmp_path_factory):
    """The command of the Go proxy."""
    if shutil.which("go") is None:
        unavailable("the Go proxy needs go, which is not on PATH")
    program = tmp_path_factory.mktemp("go") / "add_note"
    source = EXAMPLES / "go" / "add_note.go"
    # Mostly the standard library is compiled: without optimizations in two thirds of the time.
    environ = {**os.environ, "GOFLAGS": "'-gcflags=all=-N -l'", "GOGC": "off"}
    subprocess.run(["go", "vet", str(source)], check=True, env=environ)
    subprocess.run(["go", "build", "-o", str(program), str(source)], check=True, env=environ)
    return [str(program)]


@pytest.fixture(params=["typescript", "go"])
def proxy(request):
    return request.getfixturevalue(request.param)


def test_the_conversation_of_the_page(proxy):
    page = (ROOT / "docs" / "wire.md").read_text()
    lines = re.findall(r"^([→←]) (.*)$", page, re.MULTILINE)
    received = "".join(f"{line}\n" for arrow, line in lines if arrow == "→")

    result = subprocess.run(proxy, input=received, capture_output=True, text=True, timeout=60)

    sent = [json.loads(line) for line in result.stdout.splitlines()]
    assert sent == [json.loads(line) for arrow, line in lines if arrow == "←"]
    assert (result.returncode, result.stderr) == (0, "")


def test_a_slash_command_of_the_agent_gets_no_note(proxy):
    def request(id, text):
        params = {"sessionId": "s1", "prompt": [{"type": "text", "text": text}]}
        return json.dumps(
            {"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}
        )

    texts = ["/compact", "/etc/hosts is wrong"]
    lines = "".join(f"{request(id, text)}\n" for id, text in enumerate(texts))
    result = subprocess.run(
        [*proxy, "note"], input=lines, capture_output=True, text=True, timeout=60, check=True
    )

    sent = [json.loads(line)["params"]["params"]["prompt"] for line in result.stdout.splitlines()]
    assert [[block["text"] for block in prompt] for prompt in sent] == [
        ["/compact"],
        ["note", "/etc/hosts is wrong"],
    ]


@pytest.mark.parametrize("agent", ["py_agent", "ts_agent"])
def test_a_proxy_without_a_note_forwards_everything(
    alone, check_same, conductor, converse, peer, proxy, agent
):
    """Requests and notifications of both sides, their errors, and cancellation."""
    summary = converse(peer("py_client"), conductor("agent", proxy, peer(agent)))

    check_same(summary, alone(peer("py_client"), peer(agent)))


def test_notes_are_added_in_the_order_of_the_chain(typescript, go, tmp_path):
    chain = {
        "version": 1,
        "proxies": [{"run": [*go, "1 < 2 & \u2028"]}, {"run": [*typescript, "two"]}],
        "agent": {"use": "test-agent"},
    }
    (tmp_path / "chain.yaml").write_text(json.dumps(chain))
    command = [sys.executable, "-m", "conductor", "prompt", "chain.yaml", "echo"]

    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert [block["text"] for block in json.loads(result.stdout)] == [
        "two",
        "1 < 2 & \u2028",
        "echo",
    ]
