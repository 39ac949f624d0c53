"""Conductors inside conductors, and long chains."""

from signal import SIGKILL

import psutil
from support.peers.process import COMPONENTS, CONDUCTOR, agent, chunk, proxy, running_below, words

from conductor.tracing.reader import Trace
from conductor.tracing.records import ResponseRecord

FORWARD = "".join(f"[{name}]" for name in "edcba")
BACK = "".join(f"{name}>" for name in "abcde")


def nested(*commands):
    """A conductor as a proxy, with these proxies in it."""
    return [*CONDUCTOR, "proxy", *words(*commands)]


def three_levels():
    return [proxy("a"), nested(proxy("b"), nested(proxy("c"), nested(proxy("d")))), proxy("e")]


def test_three_levels_are_one_chain(start_agent):
    editor = start_agent(*three_levels(), agent())
    editor.open()

    assert editor.ask("echo hello") == f"{BACK}{FORWARD}hello"

    prompt = editor.prompt("perm")
    question = editor.next(lambda message: message.get("method") == "session/request_permission")
    outcome = {"outcome": "selected", "optionId": "allow"}
    editor.send({"id": question["id"], "result": {"outcome": outcome}})
    assert chunk(editor.next(chunk)) == f"{BACK}{FORWARD}allow"
    assert editor.answer(prompt)["result"] == {"stopReason": "end_turn"}
    assert editor.leave() == 0


def test_a_cancellation_passes_three_levels(start_agent):
    editor = start_agent(*three_levels(), agent())
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)

    editor.send({"method": "$/cancel_request", "params": {"requestId": prompt}})

    assert editor.answer(prompt)["error"]["code"] == -32800
    assert editor.leave() == 0


def test_a_failure_in_a_nested_conductor_is_in_the_error_of_the_outer_one(start_agent):
    editor = start_agent(nested(nested(proxy("a"), ["/nonexistent/proxy"])), agent())

    error = editor.initialize()["error"]

    assert "no such file: /nonexistent/proxy" in error["message"]
    assert error["data"]["component"] == "proxy"
    assert editor.leave() == 3


def test_a_nested_conductor_that_is_killed_takes_its_components_along(start_file):
    inner = {"name": "inner", "run": nested(proxy("a"), proxy("b")), "on_failure": "end_chain"}
    editor = start_file(agent(), inner)
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)
    conductor = editor.components[0]
    below = running_below(conductor.pid)
    assert len(below) == 2

    conductor.send_signal(SIGKILL)

    assert editor.answer(prompt)["error"]["data"]["component"] == "inner"
    _, alive = psutil.wait_procs(below, 60)
    assert alive == []
    assert editor.wait() == 1


def test_a_chain_file_in_a_chain_file(start, chain_file):
    inner = chain_file(None, proxy("a"), proxy("b"), file_name="inner")
    outer = chain_file(agent(), {"chain": str(inner)}, proxy("c"))
    editor = start("run", str(outer))
    editor.open()
    assert len(editor.components) == 4  # no conductor between them

    assert editor.ask("echo hello") == "a>b>c>[c][b][a]hello"
    assert editor.leave() == 0


def test_64_plugins(start_file):
    tag = f"{COMPONENTS}/plugins.py:Tag"
    silent = {"use": f"{COMPONENTS}/plugins.py:Silent"}
    proxies = [{"use": tag, "with": {"name": str(n)}} if n % 2 else silent for n in range(64)]
    editor = start_file(agent(), *proxies)
    editor.open()

    tags = "".join(f"[{number}]" for number in reversed(range(1, 64, 2)))
    assert editor.ask("echo hello") == f"{tags}hello"
    assert len(editor.components) == 1
    prompt = editor.prompt("stream 1000 100")
    editor.answer(prompt)
    assert len([update for update in editor.others if chunk(update)]) == 1000 + 1
    assert editor.leave() == 0


def test_16_processes(start_agent):
    names = [f"p{number}" for number in range(16)]
    editor = start_agent(*map(proxy, names), agent())
    editor.open()
    assert len(editor.components) == 17

    back, forward = "".join(f"{n}>" for n in names), "".join(f"[{n}]" for n in reversed(names))
    assert editor.ask("echo hello") == f"{back}{forward}hello"
    assert editor.leave() == 0


def test_a_nested_conductor_writes_a_trace_of_its_own(start_agent, tmp_path):
    path = tmp_path / "inner.jsonl"
    command = [*CONDUCTOR, "proxy", "--trace", str(path), *words(proxy("a"), proxy("b"))]
    editor = start_agent(command, agent())
    editor.open()
    assert editor.ask("echo hello") == "a>b>[b][a]hello"
    assert editor.leave() == 0

    trace = Trace.load(path)
    kinds = [each.kind for each in trace.header.components]
    answers = [each for each in trace.messages if isinstance(each, ResponseRecord)]
    assert kinds == ["client", "process", "process", "parent"]
    assert [each.method for each in answers] == [
        method for method in ("initialize", "session/new", "session/prompt") for _ in range(3)
    ]
    assert all(each.request and each.elapsed and not each.is_error for each in answers)
