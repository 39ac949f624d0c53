"""Floods: memory stays bounded, no message is lost, no process is killed."""

import json
import os
import select
from signal import SIGTERM

import psutil
import pytest
from support.peers.process import (
    agent,
    chunk,
    encoded,
    peak,
    proxy,
    python,
    wait_until_idle,
)

MEBIBYTE = 1 << 20
FLOODING = {"sessionId": "s1", "prompt": [{"type": "text", "text": "x" * 100_000}]}


def resident(editor):

    return psutil.Process(editor.pid).memory_info().rss


@pytest.mark.parametrize("proxies", [0, 1])
def test_a_client_that_does_not_read_slows_the_agent_down(start_agent, proxies):
    editor = start_agent(*[proxy("p")] * proxies, agent())
    editor.open()
    before = peak(editor.pid)
    prompt = editor.prompt("stream 500 100000")
    wait_until_idle(editor.pid, *(component.pid for component in editor.components))

    read, tail, updates = 0, b"", 0
    while b'"stopReason"' not in tail:
        data = editor.read_bytes()
        read += len(data)
        updates += data.count(b"session/update")
        tail = (tail + data)[-200:]

    assert peak(editor.pid) - before < 32 * MEBIBYTE
    assert read > 50_000_000
    ended = json.loads(tail[tail.rindex(b'{"jsonrpc"') :])
    assert (ended["id"], ended["result"]) == (prompt, {"stopReason": "end_turn"})
    assert editor.ask("echo hello") == "hello" if not proxies else "p>[p]hello"
    assert editor.leave() == 0


def test_every_update_of_a_flood_arrives_in_order(start_agent):
    editor = start_agent(proxy("p"), agent())
    editor.open()
    prompt = editor.prompt("stream 20000 100")
    wait_until_idle(editor.pid, *(component.pid for component in editor.components))

    assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
    assert [chunk(update)[5:13] for update in editor.others] == [f"{n:08d}" for n in range(20000)]
    assert editor.leave() == 0


def flood(editor):
    """Prompt until the conductor reads no more; returns how many bytes it took."""
    stdin = editor.process.stdin.fileno()
    os.set_blocking(stdin, False)
    written, data = 0, b""
    while select.select([], [stdin], [], 1)[1] and written < 100 * MEBIBYTE:
        data = data or encoded({"id": written, "method": "session/prompt", "params": FLOODING})
        count = os.write(stdin, data)
        written, data = written + count, data[count:]
    return written


def test_an_agent_that_does_not_read_slows_the_client_down(start_file):
    editor = start_file(agent("--no-read", "session/prompt"))
    editor.open()
    before = peak(editor.pid)

    assert flood(editor) < 16 * MEBIBYTE

    assert peak(editor.pid) - before < 32 * MEBIBYTE
    editor.signal(SIGTERM)
    assert editor.wait() == 143


def test_a_client_that_leaves_an_agent_that_does_not_read_is_noticed(start_file):
    editor = start_file(agent("--no-read", "session/prompt"))
    editor.open()
    flood(editor)
    editor.close_stdin()

    assert editor.process.wait(30) == 0


@pytest.mark.parametrize("size", [30_000_000, pytest.param(100_000_000, marks=pytest.mark.long)])
def test_a_large_message_passes_both_ways(start_agent, size):
    editor = start_agent(agent())
    editor.open()
    before = resident(editor)
    text = "x" * size

    assert editor.ask(f"echo {text}") == text

    assert peak(editor.pid) - before < 3.7 * size
    assert editor.ask("echo hello") == "hello"  # malloc gives back what is free when it is asked
    assert resident(editor) - before < size / 3
    assert editor.leave() == 0


LIMITS = {"max_message_bytes": "1MiB"}


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_request_over_the_limit_is_refused_as_it_comes(start_file, where):
    editor = start_file(agent(), proxy("p"), limits=LIMITS)
    editor.open()
    before = peak(editor.pid)
    params = {"sessionId": "s1", "prompt": [{"type": "text", "text": "x" * 25_000_000}]}
    head = {"id": "large", "method": "session/prompt", "params": params}
    large = head if where == "first" else dict(reversed(head.items()))
    editor.send(large)

    error = editor.answer("large")["error"]

    assert error["code"] == -32600
    assert "over the limit of 1048576 bytes (max_message_bytes)" in json.dumps(error)
    assert peak(editor.pid) - before < 16 * MEBIBYTE
    assert editor.ask("echo hello") == "p>[p]hello"
    assert editor.leave() == 0


@pytest.mark.parametrize(
    ("line", "size"), [("\n", MEBIBYTE), ("\r\n", MEBIBYTE), ("1\n", MEBIBYTE // 4)]
)
def test_a_flood_of_short_lines_leaves_the_conductor_responsive(start_agent, line, size):
    echo = python("echo_agent.py")
    flood = f"sys.stdout.write({line!r} * {size // len(line)}); sys.stdout.flush()"
    source = f"import os, sys; {flood}; os.execv({echo[0]!r}, {echo!r})"
    editor = start_agent([echo[0], "-c", source])
    editor.open()
    editor.write(b"\n" * MEBIBYTE)

    assert editor.ask("echo hello") == "hello"
    assert sum(psutil.Process(editor.pid).cpu_times()[:2]) < 20 * size / MEBIBYTE
    editor.signal(SIGTERM)
    assert editor.wait() == 143
