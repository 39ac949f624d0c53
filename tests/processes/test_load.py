"""Load: a peer that does not read slows its source down; the conductor's memory is bounded.

What is measured is the most memory that the conductor ever had, over what it had before. The chains
have a fourth of the default `max_buffered_bytes`, and more bytes flow than such a conductor may
have: 30 MB, 1 GB with `--long`.
"""

import os
import re
import threading
from signal import SIGCONT, SIGSTOP

import psutil
import pytest
from support.peers.process import agent, chunk, encoded, peak, probe, proxy, wait_until_idle

from conductor.limits import Limits

LIMITS = {"max_buffered_bytes": "12MiB"}
BUDGET = 20 * 1024 * 1024
DEFAULT_BUDGET = 64 * 1024 * 1024
SHORT, LONG = 30_000_000, pytest.param(1_000_000_000, marks=pytest.mark.long)
_NUMBER = re.compile(r"(?:p\d?>|\[p\d?\])*(\d{8})")


def read_stream(editor, count):
    """Read the chunks of a `stream` prompt and check that all are there, in order."""
    for number in range(count):
        text = chunk(editor.next(chunk))
        assert _NUMBER.match(text)[1] == f"{number:08d}"


def is_stopped_by_us(editor, word):
    (found,) = (p for p in editor.components if word in " ".join(p.cmdline()))
    return found


def everyone(editor):
    return [editor.pid, *(process.pid for process in editor.components)]


@pytest.mark.parametrize("total", [SHORT, LONG])
@pytest.mark.parametrize(("proxies", "size"), [(2, 1_000), (0, 1_000_000)])
def test_a_client_that_reads_nothing(run_chain, proxies, size, total):
    editor = run_chain(agent(), *(proxy(f"p{n}") for n in range(proxies)), limits=LIMITS)
    editor.open()
    base = peak(editor.pid)
    prompt = editor.prompt(f"stream {total // size} {size}")

    wait_until_idle(*everyone(editor))

    stalled = peak(editor.pid) - base
    read_stream(editor, total // size)
    assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
    assert (stalled < BUDGET, peak(editor.pid) - base < BUDGET) == (True, True)
    assert editor.leave() == 0


@pytest.mark.parametrize("total", [SHORT, LONG])
def test_a_proxy_that_reads_nothing(run_chain, total):
    editor = run_chain(agent(), proxy("p1"), proxy("p2"), limits=LIMITS)
    editor.open()
    base, slow = peak(editor.pid), is_stopped_by_us(editor, "--name p1")
    os.kill(slow.pid, SIGSTOP)
    prompt = editor.prompt("echo 0")  # waits in front of the proxy
    os.kill(slow.pid, SIGCONT)
    assert "result" in editor.answer(prompt)
    prompt = editor.prompt(f"stream {total // 10_000} 10000")
    editor.next(chunk)
    os.kill(slow.pid, SIGSTOP)

    wait_until_idle(*everyone(editor))

    assert peak(editor.pid) - base < BUDGET
    os.kill(slow.pid, SIGCONT)
    answer = editor.answer(prompt)
    assert answer["result"] == {"stopReason": "end_turn"}
    assert len([m for m in editor.others if "00" in chunk(m)]) >= total // 10_000 - 1
    assert peak(editor.pid) - base < BUDGET
    assert editor.leave() == 0


def blob(size):
    return b'{"jsonrpc":"2.0","method":"_blob","params":{"x":"' + b"y" * size + b'"}}\n'


@pytest.mark.parametrize("total", [SHORT, LONG])
@pytest.mark.parametrize(("size", "proxies"), [(1_000, 1)])
def test_an_agent_that_reads_nothing(run_chain, total, size, proxies):
    editor = run_chain(agent(), *(proxy(f"p{n}") for n in range(proxies)), limits=LIMITS)
    editor.open()
    base, slow = peak(editor.pid), is_stopped_by_us(editor, "echo_agent")
    os.kill(slow.pid, SIGSTOP)
    many = blob(size) * max(1, 100_000 // size)
    count = total // (size * max(1, 100_000 // size))
    uploading = threading.Thread(target=lambda: [editor.write(many) for _ in range(count)])
    uploading.start()

    wait_until_idle(*everyone(editor))

    assert uploading.is_alive()
    assert peak(editor.pid) - base < BUDGET
    os.kill(slow.pid, SIGCONT)
    uploading.join()
    sent = count * max(1, 100_000 // size)
    assert editor.ask("seen _blob").endswith(str(sent))
    assert peak(editor.pid) - base < BUDGET
    assert editor.leave() == 0


@pytest.mark.parametrize("total", [20_000_000, pytest.param(300_000_000, marks=pytest.mark.long)])
def test_both_directions_at_once_through_proxies_with_one_thread(run_chain, total):
    """Each of them stops reading while it writes; a client that reads late is all that it takes."""
    editor = run_chain(agent(), proxy("p0"), proxy("p1"), limits=LIMITS)
    editor.open()
    base, count = peak(editor.pid), total // 10_000
    prompt = editor.prompt(f"stream {count} 10000")
    uploading = threading.Thread(
        target=lambda: [editor.write(blob(10_000) * 10) for _ in range(count // 10)]
    )
    uploading.start()
    wait_until_idle(*everyone(editor))

    read_stream(editor, count)

    assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
    uploading.join()
    assert editor.ask("seen _blob").endswith(str(count))
    assert peak(editor.pid) - base < BUDGET
    assert editor.leave() == 0


@pytest.mark.parametrize("floods", [1, pytest.param(32, marks=pytest.mark.long)])
@pytest.mark.parametrize("who", ["proxy", "proxy behind others", "agent"])
def test_a_component_that_floods_the_client(run_chain, who, floods):
    """A proxy is read until its share is used up: its pipe carries both directions.

    One that reads and writes on one thread is read on, however much waits for it.
    """
    flags = ["--fault", "flood", "--at", "_flood"]
    floody = {"run": agent(*(["--proxy"] * (who != "agent")), *flags), "name": "floody"}
    before = [proxy(name) for name in "pqr" if who == "proxy behind others"]
    chain = [floody] if who == "agent" else [agent(), *before, floody]
    editor = run_chain(*chain, limits=LIMITS)
    editor.open()
    base = peak(editor.pid)
    for _ in range(floods):
        editor.send({"method": "_flood", "params": {}})

    wait_until_idle(*everyone(editor))

    stalled = peak(editor.pid) - base
    for _ in range(floods * 32_000):
        editor.next(lambda message: message.get("method") == "_flood")
    assert editor.ask("echo x").endswith("x")
    assert (stalled < BUDGET, peak(editor.pid) - base < BUDGET) == (True, True)
    assert editor.leave() == 0


def test_an_unread_stderr_does_not_block_the_conductor(run_chain):
    """An editor may start the conductor with a pipe that it never reads."""
    reading, writing = os.pipe()
    editor = run_chain_with_stderr(run_chain, writing)
    os.close(writing)
    editor.open()

    assert editor.ask("shout 10000000") == "shouting"
    for number in range(300):
        assert editor.ask(f"errors line{number}\\n").endswith("ok")

    assert editor.leave() == 0
    os.close(reading)


def run_chain_with_stderr(run_chain, stderr):
    return run_chain(probe(), log="debug", stderr=stderr)


def test_as_many_open_requests_as_may_be_by_default(run_chain, tmp_path):
    """They fit the budget, even where each has a handler that waits; one more is refused."""
    (tmp_path / "waiting.py").write_text(
        "from conductor.proxy import Proxy, on\n"
        "class Waiting(Proxy):\n"
        "    @on('_hang')\n"
        "    async def wait(self, params: dict, forward):\n"
        "        return await forward()\n"
    )
    waiting = {"use": f"{tmp_path}/waiting.py:Waiting"}
    editor = run_chain(agent("--hang-on", "_hang"), proxy("p1"), waiting, proxy("p2"))
    editor.open()
    base, limit = peak(editor.pid), Limits().max_open_requests
    hang = [{"id": f"h{number}", "method": "_hang", "params": {}} for number in range(limit)]

    editor.write(b"".join(map(encoded, hang)))

    refused = editor.answer(editor.request("_hang"))
    assert refused["error"]["message"] == f"more than {limit} open requests"
    wait_until_idle(*everyone(editor))
    assert peak(editor.pid) - base < DEFAULT_BUDGET
    editor.close_stdin()
    assert len([m for m in editor.rest() if str(m.get("id")).startswith("h")]) == limit
    assert editor.wait() == 0


def test_large_set_ups_are_not_kept_for_good(run_chain):
    editor = run_chain(agent(), proxy("p"))
    editor.open()
    meta = {"x": "y" * 10_000_000}  # more than `max_session_log_bytes`

    def set_up(times):
        for _ in range(times):
            new = editor.request("session/new", cwd="/", mcpServers=[], _meta=meta)
            assert "result" in editor.answer(new)
        return psutil.Process(editor.pid).memory_info().rss

    base = set_up(2)  # the allocator keeps what these needed, one to four of them
    assert set_up(5) - base < DEFAULT_BUDGET / 2
    assert editor.leave() == 0
