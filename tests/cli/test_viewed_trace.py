"""`--view` of the commands that run chains."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from urllib.request import Request, urlopen

import psutil
import pytest
from support.peers.process import ROOT
from support.raw_json import compact

from .conftest import COMMAND, PATIENCE

pytestmark = pytest.mark.slow

HELLO = str(ROOT / "chains" / "hello.yaml")
INITIALIZE = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}}
URL = re.compile(r"acp-conductor: view at (http://127\.0\.0\.1:\d+/)#token=(\S+)")


@pytest.fixture
def start(tmp_path, tmp_path_factory):
    """Start `acp-conductor`; its temporary files are below `tmp_path`."""
    sockets = str(tmp_path_factory.mktemp("runtime"))
    started = []

    def start(*words):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(tmp_path),
            "XDG_RUNTIME_DIR": sockets,
        }
        started.append(
            psutil.Popen([*COMMAND, *words], env=environment, cwd=tmp_path, text=True, **pipes)
        )
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.wait()
        for pipe in (each.stdin, each.stdout, each.stderr):
            pipe.close()


def temporary_traces(directory):
    return list(directory.glob("acp-conductor-view-*"))


def rows(stderr, text=None):
    """Ask the viewer, whose URL is in stderr, for the rows; until they have this text: the trace is
    written by a thread, and a request does not wait for ever."""
    for line in stderr:
        if found := URL.search(line):
            break
    headers = {"Authorization": f"Bearer {found[2]}"}
    request = Request(f"{found[1]}api/rows?wait", headers=headers)
    while True:
        with urlopen(request, timeout=PATIENCE) as answer:
            page = json.load(answer)
        if text is None or text in page["strings"]:
            return page


def test_the_page_is_served_while_the_chain_runs(start, tmp_path):
    process = start("run", "--view", HELLO)
    process.stdin.write(compact(INITIALIZE) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 7

    page = rows(process.stderr, "initialize")
    assert len(temporary_traces(tmp_path)) == 1

    assert page["live"]
    viewers = process.children()
    process.stdin.close()
    assert process.wait(PATIENCE) == 0
    assert psutil.wait_procs(viewers, PATIENCE)[1] == []
    assert temporary_traces(tmp_path) == []


def test_a_server_shows_its_clients(start):
    process = start("serve", "--view", "--listen", "127.0.0.1:0", HELLO)

    assert rows(process.stderr)["total"] == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM


@pytest.mark.fast
def test_the_trace_file_is_kept_if_it_is_asked_for(start, tmp_path):
    process = start("prompt", "--view", "--trace", "t.jsonl", HELLO, "say hello")

    assert process.communicate(timeout=PATIENCE)[0] == "hello\n"
    assert (tmp_path / "t.jsonl").stat().st_size > 0
    assert temporary_traces(tmp_path) == []


def test_nothing_is_left_of_a_conductor_that_is_killed(start, tmp_path):
    process = start("run", "--view", HELLO)
    assert rows(process.stderr)["live"]
    viewers = process.children()
    process.kill()

    assert psutil.wait_procs(viewers, PATIENCE)[1] == []
    assert temporary_traces(tmp_path) == []


def test_a_prompt_on_a_terminal_waits_for_its_reader(terminal):
    prompt = terminal("prompt", "--view", HELLO, "say hello")
    prompt.wait_for("the view ends with Ctrl-C")
    prompt.wait_for("/#token=")

    prompt.type("\x03")

    assert prompt.exit_code() == 0
