"""Sessions of projects, each in the chain of its project's file. In memory: agents are plugins."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from support.memory_chain import INITIALIZE, MemoryChain, running_chain

from conductor import log
from conductor.chain.build import components_of, spec_of_plan
from conductor.chain.chooser import ChainChooser
from conductor.chain.session_chains import ChainChoice
from conductor.chain.start_failure import FailureContext
from conductor.chainfile import ChainFile, load
from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember
from conductor.cli.chain_run import forget_plugin_files

PLUGINS = '''
import os
from contextlib import asynccontextmanager
from uuid import uuid4

import attrs
import trio

from conductor.proxy import Agent, Proxy, on


class Coder(Agent):
    """Its turns end at once, or never if the prompt is "hang"."""

    @asynccontextmanager
    async def lifespan(self):
        yield
        await trio.sleep(1)

    @on("initialize")
    async def initialize(self, params: dict):
        return {"protocolVersion": int(os.environ.get("CODER_VERSION", "1"))}

    @on("session/new")
    async def new(self, params: dict):
        return {"sessionId": uuid4().hex}

    @on("session/load")
    async def load(self, params: dict):
        return {}

    @on("session/close")
    async def close(self, params: dict):
        return {}

    @on("session/prompt")
    async def prompt(self, params: dict):
        if params["prompt"][0]["text"] == "hang":
            await trio.sleep_forever()
        return {"stopReason": "end_turn"}


@attrs.define
class Tag(Proxy):
    """Adds its name to the result of each turn; fails if the prompt says so."""

    name: str = ""
    fails: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def lifespan(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fail)
            yield
            nursery.cancel_scope.cancel()

    async def fail(self):
        await self.fails.wait()
        raise ValueError("told to fail")

    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        if params["prompt"][0]["text"] == f"fail, {self.name}":
            self.fails.set()
            await trio.sleep_forever()
        result = await forward()
        return {**result, "tags": [self.name, *result.get("tags", [])]}
'''


@attrs.define(eq=False)
class Editor:
    """A client with sessions in several directories, by name."""

    chain: MemoryChain
    home: object
    others: list = attrs.field(factory=list)
    """What came beside the last answer."""
    _ids: int = 0

    async def ask(self, method, **params):
        """Send a request; returns the answers to it that come within a virtual second."""
        self._ids += 1
        await self.chain.send({"id": self._ids, "method": method, "params": params})
        await trio.sleep(1)
        came = await self.chain.client.receive_all()
        self.others = [each for each in came if each.get("id") != self._ids]
        return [each for each in came if each.get("id") == self._ids]

    async def new(self, directory, method="session/new", **params):
        cwd = str(self.home / directory)
        (answer,) = await self.ask(method, cwd=cwd, mcpServers=[], **params)
        return answer

    async def session(self, directory):
        return (await self.new(directory))["result"]["sessionId"]

    async def prompt(self, session, text="go"):
        prompt = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", sessionId=session, prompt=prompt)

    async def tags(self, session):
        """The names of the project's proxies that a turn passes."""
        (answer,) = await self.prompt(session)
        return answer["result"].get("tags", [])


def told(messages):
    """Session and text of each update."""
    updates = [each["params"] for each in messages if each.get("method") == "session/update"]
    return [(each["sessionId"], each["update"]["content"]["text"]) for each in updates]


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("one", "two", "plain"):
        (tmp_path / name).mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "plugins.py").write_text(PLUGINS)
    return tmp_path


def write(directory, name, **keys):
    """The trusted file of a project, with a tag."""
    tag = {"use": f"{directory.parent}/plugins.py:Tag", "name": name, "with": {"name": name}}
    path = directory / ".acp-conductor.yaml"
    path.write_text(json.dumps({"version": 1, "proxies": [{**tag, **keys}]}))
    remember(TrustedFile(str(path), read_project_file(str(path), os.environ).files))


@asynccontextmanager
async def editor(home, *proxies, version=1, agent=(), **offered):
    """An initialized editor, with a chain file of these proxies."""
    path = home / "chain.yaml"
    agent = {"use": "./plugins.py:Coder", "name": "coder", "cancel_timeout": "5s", **dict(agent)}
    adapt = {"v1_v2": "never"}
    content = {"version": 1, "proxies": proxies, "agent": agent, "adapt": adapt}
    path.write_text(json.dumps(content))
    chooser = ChainChooser(
        load(str(path)), lambda: load(str(path)), str(home), forget_plugins=forget_plugin_files
    )
    async with running_chain(
        lambda: components_of(chooser.first()),
        choice=ChainChoice(chooser, spec_of_plan),
        failure_context=FailureContext(file=str(path)),
    ) as chain:
        offer = {**INITIALIZE["params"], "protocolVersion": version, **offered}
        await chain.send({**INITIALIZE, "params": offer})
        assert "result" in await chain.client.receive()
        yield Editor(chain, home)


async def test_a_session_that_is_set_up_while_its_chain_closes_gets_a_new_one(home, autojump_clock):
    write(home / "one", "one")
    async with editor(home) as it:
        first = await it.session("one")
        await it.chain.send({"id": "c", "method": "session/close", "params": {"sessionId": first}})

        second = await it.session("one")

        assert await it.tags(second) == ["one"]


async def test_sessions_of_all_projects_have_processes_up_to_the_stated_number(
    home, autojump_clock
):
    write(home / "one", "one")
    async with editor(home, agent={"session_processes": 2}) as it:
        sessions = [await it.session(each) for each in ("plain", "one", "one")]
        for directory in ("one", "plain"):
            refused = await it.new(directory)
            assert "2 processes of the agent run" in refused["error"]["message"]

        assert [await it.tags(each) for each in sessions] == [[], ["one"], ["one"]]
        await it.ask("session/close", sessionId=sessions[1])
        assert await it.tags(await it.session("plain")) == []


async def test_sessions_that_share_processes_have_the_proxies_of_their_own_project(
    home, autojump_clock, monkeypatch
):
    monkeypatch.setattr(ChainFile, "session_processes", property(lambda self: 1))
    write(home / "one", "one")
    async with editor(home) as it:
        directories = ("plain", "plain", "one", "one", "plain")
        sessions = [await it.session(each) for each in directories]

        tags = [await it.tags(each) for each in sessions]
        assert tags == [[], [], ["one"], ["one"], []]


async def test_a_client_that_sends_half_an_emoji_gets_chains_of_projects(home, autojump_clock):
    write(home / "one", "one")
    async with editor(home, **{"\ud83d": 1}) as it:
        assert await it.tags(await it.session("one")) == ["one"]


async def test_a_directory_that_cannot_exist_has_no_project(home, autojump_clock):
    async with editor(home) as it:
        for directory in (".\0", "\ud800", "a" * 5000):
            assert await it.tags(await it.session(directory)) == []


async def test_a_session_of_a_chain_that_failed_can_be_loaded_in_a_new_one(home, autojump_clock):
    write(home / "one", "one", on_failure="end_chain")
    async with editor(home) as it:
        session = await it.session("one")
        (failed,) = await it.prompt(session, "fail, one")
        (refused,) = await it.prompt(session)

        loaded = await it.new("one", "session/load", sessionId=session)

        assert "told to fail" in failed["error"]["message"]
        assert "error" in refused
        assert loaded["result"] == {}
        assert await it.tags(session) == ["one"]


async def test_an_open_session_keeps_its_chain_when_it_is_loaded_after_a_change_of_the_file(
    home, autojump_clock
):
    write(home / "one", "before")
    async with editor(home) as it:
        session = await it.session("one")
        write(home / "one", "after")

        await it.new("one", "session/load", sessionId=session)

        assert await it.tags(session) == ["before"]
        assert await it.tags(await it.session("one")) == ["after"]


async def test_the_bypass_of_a_proxy_is_told_in_the_sessions_of_its_chain_only(
    home, autojump_clock
):
    write(home / "one", "one")
    tag = {"use": "./plugins.py:Tag", "name": "all", "with": {"name": "all"}}
    async with editor(home, tag) as it:
        plain, one = await it.session("plain"), await it.session("one")
        await it.prompt(plain, "fail, all")

        assert [session for session, _ in told(it.others)] == [plain]
        assert await it.tags(plain) == []
        assert sorted(await it.tags(one)) == ["all", "one"]


async def test_a_cancelled_turn_of_a_project_is_ended_once_and_by_its_chain(home, autojump_clock):
    write(home / "one", "one")
    async with editor(home) as it:
        await it.session("plain")
        session = await it.session("one")
        assert await it.prompt(session, "hang") == []

        await it.chain.send({"method": "session/cancel", "params": {"sessionId": session}})
        await trio.sleep(20)

        came = await it.chain.client.receive_all()
        (answer,) = [each for each in came if "id" in each]
        assert answer["result"]["stopReason"] == "cancelled"
        ((where, text),) = told(came)
        assert where == session
        assert "coder did not end the cancelled turn" in text


async def test_a_chain_of_another_version_than_the_client_was_told_takes_no_session(
    home, autojump_clock, monkeypatch
):
    write(home / "one", "one")
    async with editor(home) as it:
        plain = await it.session("plain")
        monkeypatch.setenv("CODER_VERSION", "2")

        refused = await it.new("one")

        assert "it speaks version 2 of the protocol" in refused["error"]["message"]
        assert await it.tags(plain) == []


BROKEN = {
    "at import": ("class Tag(Proxy):", "class Tag(Proxy:", "SyntaxError: "),
    "lifespan": (
        "async with trio.open_nursery() as nursery:\n            nursery.start_soon(self.fail)",
        "if True:\n            raise OSError('no database')",
        "OSError: no database (plugins.py:",
    ),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("old", "new", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_plugin_that_breaks_on_a_hot_reload_is_explained_in_the_chat(
    home, autojump_clock, monkeypatch, old, new, why, version
):
    """The client may offer version 2, although the agent has answered with version 1."""
    logged = []
    monkeypatch.setattr(log, "_level", log.LEVELS["error"])
    monkeypatch.setattr(log, "_emit", lambda _, event, fields: logged.append(event))
    tag = {"use": "./plugins.py:Tag", "name": "all", "with": {"name": "all"}}
    async with editor(home, tag, version=version) as it:
        before = await it.session("plain")
        for _ in range(2):  # with another content each time
            changed = (home / "plugins.py").read_text().replace(old, new) + "\n"
            (home / "plugins.py").write_text(changed)
            session = await it.session("plain")
            (answer,) = await it.prompt(session)

            assert answer["result"] == {"stopReason": "end_turn"}
            ((where, text),) = told(it.others)
            assert where == session
            assert why in text
            assert "open a new session" in text

        assert logged.count("chain failed to start") == 2  # once each time
        assert await it.tags(before) == ["all"]
        (home / "plugins.py").write_text(PLUGINS)
        assert await it.tags(await it.session("plain")) == ["all"]
