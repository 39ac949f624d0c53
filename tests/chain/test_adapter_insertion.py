"""Proxies are inserted before an agent whose answer to `initialize` shows that it needs them."""

from __future__ import annotations

import json
import sys

import pytest

from conductor.adapters import table
from conductor.adapters.table import Adapter
from conductor.chainfile import load
from conductor.client.embedding import attach_file
from conductor.errors import RequestError
from conductor.testing import FakeClient

AGENT = """\
import json, os, sys

with open("starts", "a") as file:
    file.write(str(os.getpid()) + "\\n")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "_test/die":
        sys.exit(1)
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] != "initialize":
        answer["result"] = {"sessionId": "s", "_meta": asked["params"].get("_meta")}
    elif asked["params"]["protocolVersion"] != 2:
        answer |= json.loads(os.environ["REFUSAL"])
    else:
        answer["result"] = {"protocolVersion": 2, "info": {"name": "two", "version": "1"}}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""
ADAPTER = """\
from contextlib import asynccontextmanager

import attrs
import trio
from conductor.proxy import Proxy, on


@attrs.define
class Two(Proxy):
    required = True
    agent_version: int = 0
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

    @on("_test/fail")
    async def told(self, params: dict):
        self.fails.set()
        await trio.sleep_forever()

    @on("initialize")
    async def initialize(self, params: dict, forward):
        asked = params["protocolVersion"]
        result = await forward({**params, "protocolVersion": self.agent_version})
        return {**result, "protocolVersion": asked}

    @on("session/new")
    async def mark(self, params: dict, forward):
        return await forward({**params, "_meta": {"adapted": True}})
"""
ANSWERED = {"result": {"protocolVersion": 2, "info": {"name": "two", "version": "1"}}}
REFUSED = {"error": {"code": -32602, "message": "Invalid params"}}
FAILED = {"error": {"code": -32603, "message": "no disk"}}


@pytest.fixture
def chain_file(tmp_path, monkeypatch):
    """Write a chain with the agent that speaks version 2 only, and with the adapter as the table's
    only row; the starts of the agent are lines of the file `starts`."""

    def write(refusal, **row):
        (tmp_path / "adapter.py").write_text(ADAPTER)
        (tmp_path / "agent.py").write_text(AGENT)
        name = f"{tmp_path}/adapter.py:Two"
        values = {
            "is_needed": table.ADAPTERS[-1].is_needed,
            "options": lambda client, agent: {"agent_version": 2},
            "restarts_agent": True,
        }
        adapter = Adapter(
            name=name,
            side="agent",
            is_default=True,
            client="",
            agent="",
            effect="",
            **(values | row),
        )
        monkeypatch.setattr(table, "ADAPTERS", (adapter,))
        agent = {"run": [sys.executable, "agent.py"], "cwd": ".", "env": {}}
        agent["env"]["REFUSAL"] = json.dumps(refusal)
        file = tmp_path / "chain.yaml"
        file.write_text(json.dumps({"version": 1, "agent": agent}))
        return load(str(file))

    return write


@pytest.mark.parametrize("refusal", [ANSWERED, REFUSED], ids=["answered", "refused"])
async def test_an_agent_of_another_version_starts_again_behind_the_adapter(
    chain_file, tmp_path, refusal
):
    async with attach_file(FakeClient, chain_file(refusal)) as attached:
        client = attached.client
        result = await client.initialize()
        session = await client.request("session/new", {"cwd": "/", "mcpServers": []})

    assert result["protocolVersion"] == 1
    assert session == {"sessionId": "s", "_meta": {"adapted": True}}
    assert len((tmp_path / "starts").read_text().split()) == 2


async def test_any_other_error_of_the_agent_is_its_answer(chain_file, tmp_path):
    async with attach_file(FakeClient, chain_file(FAILED)) as attached:
        with pytest.raises(RequestError, match="no disk"):
            await attached.client.initialize()

    assert len((tmp_path / "starts").read_text().split()) == 1


async def test_an_agent_that_fits_is_asked_once_and_no_adapter_is_in_the_chain(
    chain_file, tmp_path
):
    async with attach_file(FakeClient, chain_file(REFUSED)) as attached:
        await attached.client.initialize(version=2)
        session = await attached.client.request("session/new", {"cwd": "/", "mcpServers": []})

    assert session == {"sessionId": "s", "_meta": None}
    assert len((tmp_path / "starts").read_text().split()) == 1


async def test_an_agent_that_fits_is_asked_once_by_an_adapter_that_is_forced(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    agent = {"run": [sys.executable, "agent.py"], "cwd": ".", "env": {"REFUSAL": "{}"}}
    file = tmp_path / "chain.yaml"
    file.write_text(json.dumps({"version": 1, "adapt": {"v1_v2": "always"}, "agent": agent}))
    async with attach_file(FakeClient, load(str(file))) as attached:
        await attached.client.initialize(version=2)
        session = await attached.client.request("session/new", {"cwd": "/", "mcpServers": []})
        names = [each.name for each in attached.chain.components]

    assert names[0] == "adapter:v1_v2"
    assert session["sessionId"] == "s"
    assert len((tmp_path / "starts").read_text().split()) == 1


async def test_an_adapter_for_the_same_version_gets_the_answer_that_is_known(chain_file, tmp_path):
    chain = chain_file(REFUSED, is_needed=lambda *_: True, restarts_agent=False)
    async with attach_file(FakeClient, chain) as attached:
        result = await attached.client.initialize(version=2)
        session = await attached.client.request("session/new", {"cwd": "/", "mcpServers": []})

    assert result["info"]["name"] == "two"
    assert session["_meta"] == {"adapted": True}
    assert len((tmp_path / "starts").read_text().split()) == 1


async def test_an_adapter_that_cannot_be_made_is_named(chain_file, tmp_path):
    chain = chain_file(ANSWERED, options=lambda *_: {"unknown": 1})
    async with attach_file(FakeClient, chain) as attached:
        with pytest.raises(RequestError, match=r"adapter:.*Two.*unknown"):
            await attached.client.initialize()


async def test_the_chain_ends_with_an_adapter_that_converts_the_version(chain_file):
    """Without it, client and agent would speak different versions."""
    async with attach_file(FakeClient, chain_file(ANSWERED)) as attached:
        await attached.client.initialize()
        with pytest.raises(RequestError, match="told to fail"):
            await attached.client.request("_test/fail", {})

    assert attached.ending.reason == "failed"


async def test_the_chain_goes_on_without_another_adapter_that_fails(chain_file):
    chain = chain_file(ANSWERED, restarts_agent=False, options=lambda *_: {"agent_version": 1})
    async with attach_file(FakeClient, chain) as attached:
        await attached.client.initialize()
        with pytest.raises(RequestError, match="told to fail"):
            await attached.client.request("_test/fail", {})
        session = await attached.client.request("session/new", {"cwd": "/", "mcpServers": []})

    assert session == {"sessionId": "s", "_meta": None}
    assert attached.ending.reason == "client"


async def test_a_restarted_agent_gets_the_handshake_of_the_adapter(chain_file, tmp_path):
    async with attach_file(FakeClient, chain_file(REFUSED)) as attached:
        client = attached.client
        await client.initialize()
        with pytest.raises(RequestError, match="exited"):
            await client.request("_test/die", {})
        session = await client.request("session/new", {"cwd": "/", "mcpServers": []})

    assert session["_meta"] == {"adapted": True}
    assert len((tmp_path / "starts").read_text().split()) == 3


@pytest.mark.parametrize("refusal", [ANSWERED, REFUSED], ids=["answered", "refused"])
async def test_an_agent_that_lacks_several_things_gets_all_of_them(tmp_path, refusal):
    """With the table as it is: all that chain files can switch on for an agent."""
    (tmp_path / "agent.py").write_text(AGENT)
    agent = {"run": [sys.executable, "agent.py"], "cwd": ".", "env": {}}
    agent["env"]["REFUSAL"] = json.dumps(refusal)
    asked = ("system_prompt", "additional_directories", "prompt_content")
    file = tmp_path / "chain.yaml"
    adapt = dict.fromkeys(asked, "auto")
    file.write_text(json.dumps({"version": 1, "agent": agent, "adapt": adapt}))
    async with attach_file(FakeClient, load(str(file))) as attached:
        result = await attached.client.initialize()
        new = {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/lib"]}
        session = await attached.client.request("session/new", new)

    capabilities = result["agentCapabilities"]
    assert {"systemPrompt", "additionalDirectories"} <= capabilities["sessionCapabilities"].keys()
    content = {"image": True, "audio": True, "embeddedContext": True}
    assert capabilities["promptCapabilities"] == content
    assert session["sessionId"] == "s"
    assert len((tmp_path / "starts").read_text().split()) == 2


@pytest.mark.parametrize("refusal", [ANSWERED, REFUSED], ids=["answered", "refused"])
async def test_an_adapter_by_its_name_may_ask_the_agent_again(tmp_path, refusal):
    (tmp_path / "agent.py").write_text(AGENT)
    agent = {"run": [sys.executable, "agent.py"], "cwd": ".", "env": {}}
    agent["env"]["REFUSAL"] = json.dumps(refusal)
    file = tmp_path / "chain.yaml"
    file.write_text(json.dumps({"version": 1, "proxies": [{"use": "v1_v2"}], "agent": agent}))
    async with attach_file(FakeClient, load(str(file))) as attached:
        client = attached.client
        assert (await client.initialize())["protocolVersion"] == 1
        assert (await client.request("session/new", {"cwd": "/"}))["sessionId"] == "s"
        with pytest.raises(RequestError, match="exited"):
            await client.request("_test/die", {})
        assert (await client.request("session/new", {"cwd": "/"}))["sessionId"] == "s"

    starts = len((tmp_path / "starts").read_text().split())
    assert starts == (3 if refusal is ANSWERED else 2)


V1_AGENT = """\
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    result = {"protocolVersion": 1, "agentCapabilities": {}}
    if asked["method"] != "initialize":
        result = {"sessionId": "s", "_meta": {"client": capabilities}}
    else:
        capabilities = asked["params"].get("clientCapabilities")
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
    print(json.dumps(answer, separators=(",", ":")), flush=True)
"""


async def test_a_client_of_version_2_has_files_terminals_and_a_journal_for_an_old_agent(tmp_path):
    (tmp_path / "agent.py").write_text(V1_AGENT)
    agent = {"run": [sys.executable, "agent.py"], "cwd": "."}
    adapt = dict.fromkeys(("local_files", "local_terminals"), "auto")
    kept = {"mode": "auto", "with": {"directory": str(tmp_path / "kept")}}
    file = tmp_path / "chain.yaml"
    chain = {"version": 1, "agent": agent, "adapt": {**adapt, "journal": kept}}
    file.write_text(json.dumps(chain))
    async with attach_file(FakeClient, load(str(file))) as attached:
        result = await attached.client.initialize(version=2)
        session = await attached.client.request("session/new", {"cwd": "/"})
        listed = await attached.client.request("session/list", {})
        names = [each.name for each in attached.chain.components]

    assert names[:-1] == [f"adapter:{name}" for name in ("v1_v2", *adapt, "journal")]
    seen = session["_meta"]["client"]
    assert (seen["fs"], seen["terminal"]) == ({"readTextFile": True, "writeTextFile": True}, True)
    assert {"delete", "fork"} <= result["capabilities"]["session"].keys()
    assert listed == {"sessions": []}
