"""A failed proxy is restarted without a message to its successor, or is bypassed."""

import os
from signal import SIGKILL, SIGSTOP

import pytest
from support.peers.process import agent, chunk, is_running, proxy
from support.waiting import told


def texts(messages):
    return [text for text in map(chunk, messages) if text]


def one_of(editor, word):
    """The process of the component whose command contains a word."""
    (found,) = (p for p in editor.components if word in " ".join(p.cmdline()))
    return found


def seen(editor, method):
    return texts_of(editor, f"seen {method}")[-1].split("]")[-1]


def texts_of(editor, prompt):
    editor.others.clear()
    assert "result" in editor.answer(editor.prompt(prompt))
    return texts(editor.others)


def test_its_successor_sees_nothing_of_a_restart(run_chain):
    editor = run_chain(agent(), proxy("a"), proxy("b", "--dialect", "_proxy"), proxy("c"))
    editor.open()
    os.kill(one_of(editor, "--name b").pid, SIGKILL)

    message = told(editor, "was restarted")

    assert chunk(message) == "\n\n[acp-conductor] pass_proxy-2 failed, was restarted\n\n"
    assert texts_of(editor, "echo x") == ["a>b>c>[c][b][a]x"]
    assert [seen(editor, method) for method in ("initialize", "session/new")] == ["1", "1"]
    assert editor.leave() == 0


def test_a_proxy_that_was_asked_in_the_other_dialect_first_is_restarted_in_its_own(run_chain):
    """It took a fresh process to find out how it is to be talked to; it is not asked again."""
    flags = ("--dialect", "_proxy", "--wrong", "close")
    editor = run_chain(agent(), proxy("b", *flags))
    editor.open()
    os.kill(one_of(editor, "--name b").pid, SIGKILL)

    told(editor, "was restarted")

    assert texts_of(editor, "echo x") == ["b>[b]x"]
    assert editor.leave() == 0


def test_a_stuck_proxy_that_is_killed_lets_the_client_be_read_again(run_chain):
    """What waited for it, and kept the client from being read, is gone with it."""
    editor = run_chain(agent(), proxy("a"))
    editor.open()
    stuck = one_of(editor, "--name a")
    os.kill(stuck.pid, SIGSTOP)
    line = b'{"jsonrpc":"2.0","method":"_blob","params":{"x":"' + b"y" * 1_000_000 + b'"}}\n'
    os.set_blocking(editor.process.stdin.fileno(), False)
    while editor.process.stdin.write(line[:65536]) is not None:  # until nothing more is taken
        pass
    os.set_blocking(editor.process.stdin.fileno(), True)

    os.kill(stuck.pid, SIGKILL)

    told(editor, "was restarted")
    editor.write(b"\n")
    assert texts_of(editor, "echo x")[-1].endswith("x")
    assert editor.leave() == 0


# -- bypass ----------------------------------------------------------------------------------------


@pytest.mark.fast
def test_a_proxy_can_be_left_out_and_the_client_is_told_once(run_chain):
    editor = run_chain(
        agent(), proxy("a"), {"run": proxy("b"), "name": "b", "on_failure": "bypass"}, proxy("c")
    )
    editor.open()
    prompt = editor.prompt("wait")
    editor.next(chunk)

    os.kill(one_of(editor, "--name b").pid, SIGKILL)

    editor.others.clear()
    assert editor.answer(prompt)["error"]["data"]["next"] == "the chain goes on without it"
    assert texts(editor.others) == [
        "\n\n[acp-conductor] component 'b' was ended by SIGKILL; the chain goes on without it\n\n"
    ]
    assert texts_of(editor, "echo x") == ["a>c>[c][a]x"]
    assert texts_of(editor, "echo y") == ["a>c>[c][a]y"]
    assert editor.leave() == 0


# -- plugins ---------------------------------------------------------------------------------------

PLUGINS = """
import attrs
import trio
from contextlib import asynccontextmanager

from conductor.proxy import Proxy, on


@attrs.define
class Fragile(Proxy):
    broken = None

    @asynccontextmanager
    async def lifespan(self):
        Fragile.broken = trio.Event()

        async def watch():
            await Fragile.broken.wait()
            raise RuntimeError("worn out")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()

    @on("_break", source="client")
    async def break_(self, params: dict):
        Fragile.broken.set()

    @on("session/prompt")
    async def tag(self, params: dict, forward):
        params["prompt"][0]["text"] = "[f]" + params["prompt"][0]["text"]
        return await forward(params)


@attrs.define
class Redacts(Fragile):
    required = True
"""


@pytest.fixture
def plugins(tmp_path):
    path = tmp_path / "plugins_that_fail.py"
    path.write_text(PLUGINS)
    return path


@pytest.mark.fast
def test_an_isolated_plugin_is_restarted(run_chain, plugins):
    """The agent and unhandled requests are not affected."""
    spec = {"use": f"{plugins}:Fragile", "name": "f", "isolate": True}
    editor = run_chain(agent("--hang-on", "$/cancel_request"), proxy("a"), spec, proxy("c"))
    editor.open()
    for number in range(3):
        prompt = editor.prompt("wait")
        editor.next(lambda message: "waiting" in chunk(message))

        editor.send({"method": "_break", "params": {}})

        error = editor.answer(prompt)["error"]
        assert error["message"].startswith("component 'f' failed: RuntimeError: worn out (")
        assert "What to do: look at what was done, then send it again." in error["message"]
        assert error["data"]["next"] == f"it is restarted ({number + 1} of 3)"
        told(editor, "f failed, was restarted")
        assert texts_of(editor, "echo x") == ["a>c>[c][f][a]x"]
    assert [seen(editor, method) for method in ("initialize", "session/new")] == ["1", "1"]
    assert seen(editor, "session/cancel") == "3"
    editor.send({"method": "_break", "params": {}})
    told(editor, "goes on without it")
    assert texts_of(editor, "echo x") == ["a>c>[c][a]x"]
    assert editor.leave() == 0


def test_a_required_plugin_in_a_process_of_its_own_is_restarted_and_never_left_out(
    run_chain, plugins
):
    spec = {"use": f"{plugins}:Redacts", "isolate": True, "restarts": "1 in 1h", "name": "r"}
    editor = run_chain(agent(), spec)
    editor.open()
    process = one_of(editor, "standalone")
    os.kill(process.pid, SIGKILL)
    told(editor, "was restarted")
    assert not is_running(process)
    assert texts_of(editor, "echo x") == ["[f]x"]

    os.kill(one_of(editor, "standalone").pid, SIGKILL)

    assert editor.rest() == []
    assert editor.wait() == 1
