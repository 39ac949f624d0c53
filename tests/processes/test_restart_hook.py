"""The restart hook of Python proxies: called on a restart, with the open sessions."""

import os
from signal import SIGKILL

import pytest
from support.peers.process import CONDUCTOR, agent, chunk
from support.waiting import told

from conductor.proxy import Agent, Proxy, on
from conductor.proxy.annotations import DeclarationError

COUNTER = '''
import json
import pathlib

import attrs

from conductor.proxy import Proxy, RequestError, on, run


@attrs.define
class Counter(Proxy):
    """Counts prompts, and forgets none."""

    path: pathlib.Path
    count: int = attrs.field(default=0, init=False)
    heard: list[str] = attrs.field(factory=list, init=False)

    async def on_restart(self, sessions):
        self.count = int(self.path.read_text())
        try:
            await self.agent.request("_which", {})
        except RequestError as exc:
            self.heard = ["restart", *sessions, exc.data]

    @on("session/new")
    async def see(self, params: dict, forward):
        self.heard = [*self.heard, "new"]
        return await forward()

    @on("session/prompt")
    async def number(self, params: dict, forward):
        self.count += 1
        self.path.write_text(str(self.count))
        await self.client.say(params["sessionId"], f"{self.count} {' '.join(self.heard)}")
        return await forward()


if __name__ == "__main__":
    run(Counter)
'''


@pytest.fixture
def counter(tmp_path):
    """Specs of the counting proxy: in a process of its own, as a program, in a nested chain."""
    path = tmp_path / "counter.py"
    path.write_text(COUNTER)
    count = str(tmp_path / "count")
    use = {"use": f"{path}:Counter", "with": {"path": count}}
    (tmp_path / "nested.yaml").write_text(
        f"version: 1\nproxies:\n- use: {path}:Counter\n  with: {{path: {count}}}\n"
    )
    python = CONDUCTOR[0]
    return {
        "isolated": {**use, "isolate": True, "name": "c"},
        "program": {"run": [python, str(path), "--path", count], "name": "c"},
        "nested": {"run": [*CONDUCTOR, "proxy", str(tmp_path / "nested.yaml")], "name": "c"},
    }


def said(editor, prompt="echo x"):
    editor.others.clear()
    assert "result" in editor.answer(editor.prompt(prompt))
    return next(filter(None, map(chunk, editor.others)))


def kill(editor):
    """The proxy, with additional members."""
    (child,) = (p for p in editor.components if "echo_agent" not in " ".join(p.cmdline()))
    os.kill(child.pid, SIGKILL)


@pytest.mark.parametrize("how", ["isolated", "program", "nested"])
def test_the_restart_hook_gets_the_open_sessions_before_other_messages(run_chain, counter, how):
    editor = run_chain(agent(), counter[how])
    editor.open()
    assert said(editor) == "1 new"
    kill(editor)
    told(editor, "was restarted")

    assert said(editor) == "2 restart s1 _which new"
    kill(editor)
    told(editor, "was restarted")
    assert said(editor) == "3 restart s1 _which new"
    assert editor.leave() == 0


def test_a_restart_hook_that_raises_fails_the_restart(run_chain, counter, tmp_path):
    """A proxy without its state is restarted once more or bypassed."""
    editor = run_chain(agent(), {**counter["isolated"], "restarts": "2 in 1h"})
    editor.open()
    said(editor)
    (tmp_path / "count").unlink()

    kill(editor)

    message = told(editor, "goes on without it")
    assert "could not be initialized again" in chunk(message)
    assert editor.ask("echo x") == "x"
    assert editor.leave() == 0


@pytest.mark.fast
def test_the_author_is_told_of_a_hook_that_would_never_be_called():
    with pytest.raises(DeclarationError, match="it is for proxies"):

        class Forgetful(Agent):
            async def on_restart(self, sessions): ...

    with pytest.raises(DeclarationError, match="async def on_restart"):

        class Hasty(Proxy):
            def on_restart(self, sessions): ...


@pytest.mark.fast
def test_a_plugin_with_an_initialize_handler_gets_the_request_and_the_restart_hook():
    class Both(Proxy):
        @on("initialize")
        async def see(self, params: dict, forward):
            return await forward()

        async def on_restart(self, sessions): ...

    assert [handler.function for handler in Both._acp_handlers] == [Both.see]
