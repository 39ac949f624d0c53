"""A proxy that contains proxies: isolated, restarted, and as a program of its own."""

import subprocess

import pytest
from support.peers.process import CONDUCTOR, agent, chunk
from support.waiting import told

RULES = """
from contextlib import asynccontextmanager

import attrs
import trio

from conductor.proxy import Proxy, on, on_prompt, run, text


@attrs.define(slots=False)
class Word(Proxy):
    word: str = "b"

    def option_warnings(self):
        return [("word", "is long")] if len(self.word) > 5 else ()

    async def on_restart(self, sessions):
        await self.client.say(sessions[0], f"{self.word} is back")

    @asynccontextmanager
    async def lifespan(self):
        self.broken = trio.Event()

        async def watch():
            await self.broken.wait()
            raise RuntimeError("worn out")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()

    @on("_break", source="client")
    async def break_(self, params: dict, forward):
        if params.get("word") == self.word:
            self.broken.set()
        else:
            await forward()

    @on_prompt
    async def add(self, session, prompt, forward):
        prompt.blocks[0]["text"] += f" {self.word}"
        return await forward()


@attrs.define(slots=False)
class Rules(Word):
    word: str = "a"
    inner: Word = attrs.field(factory=Word)
    required_too: bool = False

    def proxies(self):
        needed = Word("needed")
        needed.required = self.required_too
        return [self.inner, needed]


if __name__ == "__main__":
    run(Rules)
"""


@pytest.fixture
def entries(tmp_path):
    """Entries of the chain file, by how the proxy runs."""
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    use = {"use": f"{path}:Rules", "name": "rules"}
    return {
        "in-process": use,
        "restarted": {**use, "on_failure": "restart"},
        "isolated": {**use, "isolate": True},
        "program": {"run": [CONDUCTOR[0], str(path)], "name": "rules"},
    }


@pytest.mark.parametrize("how", ["in-process", "restarted", "isolated", "program"])
def test_contained_proxies_run_in_the_process_of_their_container(run_chain, entries, how):
    editor = run_chain(agent(), entries[how])
    editor.open()

    assert editor.ask("echo x") == "x a b needed"
    assert len(editor.components) == (1 if how in ("in-process", "restarted") else 2)
    assert editor.leave() == 0


@pytest.mark.parametrize("how", ["restarted", "isolated"])
def test_all_are_restarted_together_and_each_restart_hook_is_called(run_chain, entries, how):
    editor = run_chain(agent(), entries[how])
    editor.open()

    editor.send({"method": "_break", "params": {"word": "b"}})

    told(editor, "rules failed, was restarted")
    said = [chunk(message) for message in editor.others]
    assert sorted(said) == ["a is back", "b is back", "needed is back"]
    assert editor.ask("echo x") == "x a b needed"
    assert editor.leave() == 0


@pytest.mark.parametrize("how", ["restarted", "isolated"])
def test_the_chain_ends_without_a_contained_proxy_that_is_required(run_chain, entries, how):
    entry = {**entries[how], "with": {"required_too": True}, "restarts": "0 in 1h"}
    editor = run_chain(agent(), entry)
    editor.open()

    editor.send({"method": "_break", "params": {"word": "b"}})

    assert editor.wait() == 1
    assert "failed: RuntimeError: worn out" in editor.wait_log("chain ends")


def test_check_shows_mistakes_and_warnings_of_contained_proxies(tmp_path, entries):
    file = tmp_path / "chain.yaml"
    use = entries["in-process"]["use"]

    def check(inner: str) -> str:
        file.write_text(
            f"version: 1\nproxies:\n- use: {use}\n  with:\n    inner: {{{inner}}}\n"
            "agent:\n  use: test-agent\n"
        )
        command = [*CONDUCTOR, "check", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr

    assert "chain.yaml:5:13: error: unknown option `wrod`" in check("wrod: x")
    assert "chain.yaml:3:8: warning: Rules/Word: word: is long" in check("word: many words")
