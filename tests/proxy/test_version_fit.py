"""Handlers with types of one version of the protocol in another one; `versions` of a class."""

from __future__ import annotations

import json

import attrs
import pytest

from conductor import log
from conductor.errors import RequestError
from conductor.proxy import Forward, Proxy, RawMessage, on, on_prompt, tool
from conductor.proxy.peers import text
from conductor.schema import v1, v2
from conductor.testing import FakeAgent


class ForVersion1(Proxy):
    @on("session/prompt")
    async def add(self, request: v1.PromptRequest, forward):
        request.prompt.append(text("for version 1"))
        return await forward()


class ForBoth(ForVersion1):
    @on("session/prompt")
    async def add_in_version_2(self, request: v2.PromptRequest, forward):
        request.prompt.append(v2.TextContent(text="for version 2"))
        return await forward()


class Besides(ForVersion1):
    @on_prompt
    async def add_always(self, session, prompt, forward):
        prompt.blocks.append({"type": "text", "text": "event"})
        return await forward()


class Plain(Proxy):
    @on("session/prompt")
    async def add(self, params, forward):
        params["prompt"].append(text("plain"))
        return await forward()


@pytest.fixture
def logged(capsys):
    """Returns the log lines so far whose event contains a text."""
    log.configure("warning", as_json=True)

    def lines(text):
        found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        return [line for line in found if text in line["event"]]

    return lines


async def prompted(chain, proxy, version):
    """The texts that the agent gets after "hi"."""
    agent = FakeAgent(turns=[["done"]])
    async with chain(proxy, agent) as client:
        await client.initialize(version=version)
        await client.prompt(await client.new_session("/work"), "hi")
    (prompt,) = agent.transcript.of("session/prompt", "request")
    return [block["text"] for block in prompt.params["prompt"]][1:]


@pytest.mark.parametrize(
    ("proxy", "version", "added"),
    [
        (ForVersion1, 1, ["for version 1"]),
        (ForVersion1, 2, []),
        (ForBoth, 1, ["for version 1"]),
        (ForBoth, 2, ["for version 2"]),
        (Besides, 1, ["event", "for version 1"]),
        (Besides, 2, ["event"]),
        (Plain, 2, ["plain"]),
    ],
)
async def test_a_handler_runs_in_the_version_of_its_type(chain, proxy, version, added):
    assert await prompted(chain, proxy(), version) == added


@pytest.mark.parametrize(
    ("proxy", "version", "warned"),
    [(ForVersion1, 1, 0), (ForVersion1, 2, 1), (ForBoth, 2, 0), (Besides, 2, 1), (Plain, 2, 0)],
)
async def test_a_handler_that_is_left_out_is_logged_once(chain, logged, proxy, version, warned):
    await prompted(chain, proxy(), version)

    lines = logged("handler is left out")
    assert len(lines) == warned
    for line in lines:
        assert line["plugin"] == proxy.__name__
        assert "test_version_fit.py:" in line["handler"]
        versions = line["handler_version"], line["protocol_version"]
        assert (line["method"], versions) == ("session/prompt", (1, 2))


async def test_a_handler_of_a_method_that_the_version_lacks_is_not_worth_a_warning(chain, logged):
    class Reads(Proxy):
        @on("fs/read_text_file")
        async def read(self, request: v1.ReadTextFileRequest, forward):
            return await forward()

    await prompted(chain, Reads(), 2)

    assert logged("left out") == []


@pytest.mark.parametrize("version", [1, 2])
async def test_a_handler_with_a_type_of_both_versions_runs_in_both(chain, logged, version):
    class Closes(Proxy):
        @on("session/close")
        async def close(
            self,
            request: v1.CloseSessionRequest,
            forward: Forward[v1.CloseSessionRequest, v1.CloseSessionResponse],
        ) -> v1.CloseSessionResponse:
            answer = await forward()
            answer.extra["_closed"] = request.session_id
            return answer

    agent = FakeAgent(handlers={"session/close": lambda params: {}})
    async with chain(Closes(), agent) as client:
        await client.initialize(version=version)
        assert await client.request("session/close", {"sessionId": "s"}) == {"_closed": "s"}
    assert logged("left out") == []


async def test_handlers_of_initialize_run_in_every_version(chain, logged):
    class Named(Proxy):
        @on("initialize")
        async def name(self, request: v1.InitializeRequest, forward):
            answer = await forward()
            answer.extra["_vendor"] = True
            return answer

    async with chain(Named(), FakeAgent()) as client:
        answer = await client.initialize(version=2)

    assert answer["_vendor"] is True
    assert logged("left out") == []


async def test_a_required_proxy_refuses_a_version_for_which_it_lacks_a_handler(chain):
    class Guard(ForVersion1):
        required = True

    async with chain(Guard(), FakeAgent()) as client:
        with pytest.raises(RequestError) as caught:
            await client.initialize(version=2)

    assert "component 'Guard' did not start: client and agent speak version 2" in str(caught.value)
    assert "the handler of 'session/prompt' at " in str(caught.value)
    assert "add a handler with a type of conductor.schema.v2" in str(caught.value)


FILE = """version: 1
proxies:
  - use: ./mine.py:Mine
    required: true
"""


async def test_a_proxy_that_the_chain_file_requires_refuses_too(chain, tmp_path):
    (tmp_path / "chain.yaml").write_text(FILE)
    (tmp_path / "mine.py").write_text(
        "from conductor.proxy import Proxy\n\nclass Mine(Proxy):\n    versions = {1}\n"
    )
    async with chain(tmp_path / "chain.yaml", FakeAgent()) as client:
        with pytest.raises(RequestError) as caught:
            await client.initialize(version=2)

    assert "and Mine is for version 1" in str(caught.value)


# -- versions --------------------------------------------------------------------------------------


@attrs.define
class OnlyVersion1(Proxy):
    seen: list[str] = attrs.field(factory=list)

    versions = {1}  # noqa: RUF012

    @on("initialize")
    async def initialize(self, params, forward):
        return {**await forward(), "_meta": {"seen": True}}

    @on("session/prompt")
    async def add(self, params, forward):
        params["prompt"].append(text("plain"))
        return await forward()

    @on("*")
    async def observe(self, message: RawMessage):
        self.seen.append(message.method)

    @tool
    async def count(self) -> int:
        """Count."""
        return 1


async def test_a_proxy_runs_in_its_versions(chain, logged):
    proxy = OnlyVersion1()

    assert await prompted(chain, proxy, 1) == ["plain"]
    assert "session/prompt" in proxy.seen
    assert logged("bypassed") == []


async def test_a_proxy_is_bypassed_in_other_versions_with_one_line_in_the_log(chain, logged):
    proxy, agent = OnlyVersion1(), FakeAgent(turns=[["done"]])
    async with chain(proxy, agent) as client:
        answer = await client.initialize(version=2)
        await client.prompt(await client.new_session("/work"), "hi")

    (prompt,) = agent.transcript.of("session/prompt", "request")
    (opened,) = agent.transcript.of("session/new", "request")
    assert [block["text"] for block in prompt.params["prompt"]] == ["hi"]
    assert opened.params["mcpServers"] == []
    assert "_meta" not in answer
    assert set(proxy.seen) == {"initialize"}
    (line,) = logged("bypassed")
    assert (line["plugin"], line["versions"], line["protocol_version"]) == ("OnlyVersion1", [1], 2)


# -- notifications that do not fit -----------------------------------------------------------------

BROKEN = {"sessionUpdate": "agent_message_chunk", "content": "no block"}
"""An update without the content block that the schema requires."""


class Typed(Proxy):
    @on("session/update")
    async def update(self, notification: v1.SessionNotification, forward):
        await forward()


class TypedTwice(Typed):
    @on("session/update")
    async def look(self, notification: v1.SessionNotification, forward):
        await forward()


class TypedObserver(Typed):
    on_error = "pass"


class TypedGuard(Typed):
    required = True


@pytest.mark.parametrize(
    ("proxy", "passed", "count"),
    [(Typed, 2, 1), (TypedTwice, 2, 2), (TypedObserver, 2, 1), (TypedGuard, 0, 0)],
)
async def test_an_update_that_does_not_fit_passes_a_typed_handler_with_one_line_in_the_log(
    chain, logged, proxy, passed, count
):
    agent = FakeAgent(turns=[["done"]])
    async with chain(proxy(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        for _ in range(2):
            agent.update(session, BROKEN)
        await client.prompt(session, "after them")
        *broken, last = client.transcript.updates()

    assert ([each for each in broken if each == BROKEN], last["content"]["text"]) == (
        [BROKEN] * passed,
        "done",
    )
    lines = logged("does not fit")
    assert len(lines) == count
    for line in lines:
        assert (line["plugin"], line["type"]) == (proxy.__name__, "SessionNotification")
        assert "test_version_fit.py:" in line["handler"]
        assert "content" in line["problem"]
        assert "no block" not in line["problem"]
