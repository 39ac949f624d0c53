"""What a proxy's author works with, in a whole chain in memory."""

from __future__ import annotations

import inspect
from collections import deque

import attrs
import pytest
import trio
from support.peers.port import hop

from conductor.errors import LocalProtocolError
from conductor.proxy import Proxy, RawMessage, RequestError, on, per_session, tool
from conductor.proxy.peers import text
from conductor.schema import v1, v2
from conductor.testing import FakeAgent


@attrs.define
class AddContext(Proxy):
    """Put a fixed text before every prompt."""

    context: str

    @on("session/prompt")
    async def add_context(self, request: v1.PromptRequest, forward):
        request.prompt.insert(0, text(self.context))
        return await forward(request)


async def test_the_ten_line_proxy(chain):
    agent = FakeAgent(turns=[["hello"]])
    async with chain(AddContext("Be kind."), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")

        assert await client.prompt(session, "hi") == {"stopReason": "end_turn"}

    (prompt,) = agent.transcript.of("session/prompt")
    assert prompt.params["prompt"] == [
        {"type": "text", "text": "Be kind."},
        {"type": "text", "text": "hi"},
    ]


class ChangesInPlace(Proxy):
    @on("session/prompt")
    async def prompt(self, request: v1.PromptRequest, forward):
        request.prompt[0].text = "changed"
        return await forward()

    @on("session/update")
    async def update(self, notification: v1.SessionNotification, forward):
        if isinstance(notification.update, v1.AgentMessageChunk):
            notification.update.content = text("shorter")
        await forward()


class WithAnotherHandler(ChangesInPlace):
    @on("session/prompt")
    async def look(self, params, forward):
        return await forward()

    @on("session/update")
    async def look_at_update(self, params, forward):
        await forward()


class WithTools(ChangesInPlace):
    @tool
    async def count(self) -> int:
        """Count."""
        return 1

    @on("session/new")
    async def new(self, params, forward):
        params["cwd"] = "/changed"
        return await forward()


@pytest.mark.parametrize("proxy", [ChangesInPlace, WithAnotherHandler, WithTools])
async def test_forward_without_a_message_sends_what_was_changed_in_place(chain, proxy):
    agent = FakeAgent(turns=[["hello"]])
    async with chain(proxy(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    (prompt,) = agent.transcript.of("session/prompt", "request")
    assert prompt.params["prompt"] == [{"type": "text", "text": "changed"}]
    assert client.transcript.text() == "shorter"
    (opened,) = agent.transcript.of("session/new", "request")
    assert opened.params["cwd"] == ("/changed" if proxy is WithTools else "/work")


async def test_several_handlers_of_one_method_run_in_method_resolution_order(chain):
    seen = []

    class Base(Proxy):
        @on("session/prompt")
        async def last(self, params, forward):
            seen.append(("last", params["prompt"][0]["text"]))
            return await forward()

    class P(Base):
        @on("session/prompt")
        async def first(self, params, forward):
            params["prompt"][0]["text"] += " changed"
            result = await forward(params)
            return {**result, "_meta": {"seen": True}}

        @on("session/prompt")
        async def second(self, request: v1.PromptRequest, forward):
            seen.append(("second", request.prompt[0].text))
            return await forward()

    async with chain(P()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = await client.prompt(session, "hi")

    assert seen == [("second", "hi changed"), ("last", "hi changed")]
    assert answer == {"stopReason": "end_turn", "_meta": {"seen": True}}


class Twice(Proxy):
    @on("_tick", "_count", source="client")
    async def first(self, params: dict, forward):
        return await forward()

    @on("_tick", "_count", source="client")
    async def second(self, params: bytes, forward):
        return await forward()


async def test_params_that_are_absent_stay_so_through_several_handlers():
    async with hop(Twice()) as on_hop:
        on_hop.client.send("_tick")
        on_hop.client.ask("_count")
        await on_hop.settle()

    assert on_hop.agent.heard == [("notification", "_tick", None), ("request", "_count", None)]


async def test_a_handler_with_types_of_version_1_meets_an_answer_of_version_2(chain):
    seen = []

    @attrs.define
    class Typed(Proxy):
        @on("session/prompt")
        async def look(self, request: v1.PromptRequest, forward):
            answer = await forward(request)
            seen.append(type(answer))
            return answer

    async def prompt(params):
        return {"messageId": "m1"}

    async with chain(Typed(), FakeAgent({"session/prompt": prompt})) as client:
        await client.initialize()
        session = await client.new_session("/work")

        assert await client.prompt(session, "hi") == {"messageId": "m1"}

    assert seen == [v2.PromptResponse]


async def test_text_works_in_plain_params(chain):
    class Plain(Proxy):
        @on("session/prompt")
        async def add(self, params, forward):
            params["prompt"].append(text("and this"))
            result = await forward(params)
            result["_meta"] = {"seen": [text("x")]}
            return result

    agent = FakeAgent(turns=[["hello"]])
    async with chain(Plain(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = await client.prompt(session, "hi")

    assert answer["_meta"] == {"seen": [{"type": "text", "text": "x"}]}
    (prompt,) = agent.transcript.of("session/prompt")
    assert prompt.params["prompt"][1:] == [{"type": "text", "text": "and this"}]


class Hidden(Proxy):
    """Asks the agent something that the client is not to see."""

    @on("session/prompt")
    async def ask_first(self, params, forward):
        session = params["sessionId"]
        async with self.muted(session):
            turn = await self.agent.prompt_turn(session, "secret?")
        await self.client.say(session, f"[{turn.text} {turn.stop_reason}]")
        return await forward()


async def test_a_hidden_prompt(chain):
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    agent = FakeAgent(turns=[["se", commands, "cret"], ["shown"]])
    async with chain(Hidden(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    kinds = [update["sessionUpdate"] for update in client.transcript.updates()]
    assert kinds == ["available_commands_update", "agent_message_chunk", "agent_message_chunk"]
    assert client.transcript.text() == "[secret end_turn]shown"


async def test_hidden_prompts_of_two_proxies_in_one_chain(chain):
    agent = FakeAgent(turns=[["a"], ["b"], ["c"], ["d"]])
    async with chain(Hidden(), Hidden(), agent) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with trio.fail_after(5):
            await client.prompt(session, "hi")

    assert client.transcript.text() == "[[a end_turn]b end_turn][c end_turn]d"


async def test_other_sessions_are_not_muted(chain):
    async def say_elsewhere(session):
        agent.say("session-2", "elsewhere ")

    agent = FakeAgent(turns=[["secret", say_elsewhere]])
    async with chain(Hidden(), agent) as client:
        await client.initialize()
        await client.prompt(await client.new_session("/work"), "hi")

    assert client.transcript.text() == "elsewhere [secret end_turn]"


async def test_typed_questions_to_the_client(chain):
    said = []

    class Asks(Proxy):
        @on("session/prompt")
        async def ask(self, request: v1.PromptRequest, forward):
            session = request.session_id
            said.append(await self.client.read_text_file(session, "/a", line=2))
            await self.client.write_text_file(session, "/b", "text")
            answer = await self.client.request_permission(
                session_id=session,
                tool_call=v1.ToolCallUpdate(tool_call_id="t"),
                options=[v1.PermissionOption(option_id="yes", name="Yes", kind="allow_once")],
            )
            said.append(answer.outcome)
            again = await self.client.request(v1.ReadTextFileRequest(session_id=session, path="/c"))
            said.append(again)
            await self.client.notify(
                v1.SessionNotification(
                    session_id=session, update=v1.AgentMessageChunk(content=text("typed"))
                )
            )
            return await forward(request)

    asked = []

    def read(params):
        asked.append(params)
        return {"content": f"content of {params['path']}"}

    async with chain(Asks(), FakeAgent(turns=[["."]])) as client:
        client.handlers["fs/read_text_file"] = read
        client.handlers["fs/write_text_file"] = lambda params: asked.append(params)
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    assert said == [
        "content of /a",
        v1.SelectedPermissionOutcome(option_id="yes"),
        v1.ReadTextFileResponse(content="content of /c"),
    ]
    assert asked == [
        {"sessionId": session, "path": "/a", "line": 2},
        {"sessionId": session, "path": "/b", "content": "text"},
        {"sessionId": session, "path": "/c"},
    ]
    assert client.transcript.text() == "typed."


async def test_a_proxy_asks_the_user_with_a_form(chain):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answers = [
        {"action": "accept", "content": {"name": "x"}},
        {"action": "accept"},
        {"action": "decline"},
    ]
    seen, received = [], []

    class Asks(Proxy):
        @on("session/prompt")
        async def ask(self, params, forward):
            id = params["sessionId"]
            for call in ("c1", None, None):
                seen.append(
                    await self.client.elicit("Name?", schema, session_id=id, tool_call_id=call)
                )
            return await forward()

    async with chain(Asks(), FakeAgent()) as client:

        def answer(params):
            received.append(params)
            return answers[len(received) - 1]

        client.handlers["elicitation/create"] = answer
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "go")

    assert seen == [{"name": "x"}, {}, None]
    form = {"mode": "form", "message": "Name?", "requestedSchema": schema, "sessionId": session}
    assert received == [{**form, "toolCallId": "c1"}, form, form]


async def test_an_object_that_is_no_message_names_no_method(chain):
    class Wrong(Proxy):
        @on("session/prompt")
        async def ask(self, params, forward):
            await self.agent.notify(v1.TextContent(text="x"))

    async with chain(Wrong(), FakeAgent()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "hi")

    assert "TextContent is not the params of any method" in caught.value.data["reason"]


async def test_requests_to_the_agent(chain):
    class Asks(Proxy):
        @on("session/prompt")
        async def ask(self, params, forward):
            own = await self.agent.new_session("/own")
            await self.agent.request("session/set_mode", {"sessionId": own, "modeId": "code"})
            await self.agent.cancel(own)
            return {"stopReason": "refusal", "_meta": {"own": own}}

    async with chain(Asks()) as client:
        await client.initialize()
        session = await client.new_session("/work")
        answer = await client.prompt(session, "hi")

    assert answer["stopReason"] == "refusal"
    assert answer["_meta"]["own"] != session


# -- state per session -----------------------------------------------------------------------------


@attrs.define
class Counts(Proxy):
    limit: int = 10
    prompts = per_session(list)

    @on("session/prompt")
    async def count(self, params, forward):
        self.prompts[params["sessionId"]].append(len(self.prompts))
        return await forward()


def test_per_session_is_no_option():
    assert [field.name for field in attrs.fields(Counts)] == ["limit"]
    assert Counts.prompts is vars(Counts)["prompts"]
    one, other = Counts(), Counts()
    one.prompts["a"].append(1)
    assert (dict(one.prompts), dict(other.prompts)) == ({"a": [1]}, {})
    with pytest.raises(TypeError, match=r"not a tuple: write `self\.prompts\[session\.id\]`"):
        one.prompts[("a",)]


def test_a_method_as_factory_gets_the_plugin():
    @attrs.define
    class P(Proxy):
        limit: int = 10

        @per_session
        def latest(self) -> deque[str]:
            return deque(maxlen=self.limit)

        sizes = per_session(lambda self: [self.limit])

    assert [field.name for field in attrs.fields(P)] == ["limit"]
    assert P(3).latest["a"].maxlen == 3
    assert P(4).sizes["a"] == [4]


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_state_lasts_as_long_as_its_session(chain, method):
    proxy = Counts()
    agent = FakeAgent(handlers={method: lambda params: {}})
    async with chain(proxy, agent) as client:
        await client.initialize()
        first, second = await client.new_session("/a"), await client.new_session("/b")
        for session in (first, second, first):
            await client.prompt(session, "hi")
        assert {session: len(of) for session, of in proxy.prompts.items()} == {first: 2, second: 1}

        await client.request(method, {"sessionId": first})
        assert list(proxy.prompts) == [second]

    assert not proxy.prompts


async def test_state_outlives_a_close_that_failed(chain):
    def refuse(params):
        raise RequestError(-32000, "no")

    proxy = Counts()
    async with chain(proxy, FakeAgent(handlers={"session/close": refuse})) as client:
        await client.initialize()
        session = await client.new_session("/a")
        await client.prompt(session, "hi")
        with pytest.raises(RequestError):
            await client.request("session/close", {"sessionId": session})

        assert session in proxy.prompts


# -- observers -------------------------------------------------------------------------------------


class Watcher(Proxy):
    def __init__(self):
        self.seen = []

    @on("*")
    async def see(self, message: RawMessage):
        self.seen.append(message)


async def test_an_observer_sees_everything_raw_and_changes_nothing(chain):
    watcher = Watcher()
    async with chain(watcher, FakeAgent(turns=[["hello"]]), bridged=False) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")
        with pytest.raises(RequestError):
            await client.request("_unknown", {"a": 1})

    shown = [(m.kind, m.method, m.source, m.is_error, m.number) for m in watcher.seen]
    assert shown == [
        ("request", "initialize", "client", False, 1),
        ("response", "initialize", "agent", False, 1),
        ("request", "session/new", "client", False, 2),
        ("response", "session/new", "agent", False, 2),
        ("request", "session/prompt", "client", False, 3),
        ("notification", "session/update", "agent", False, 0),
        ("response", "session/prompt", "agent", False, 3),
        ("request", "_unknown", "client", False, 4),
        ("response", "_unknown", "agent", True, 4),
    ]
    assert watcher.seen[-2].payload == b'{"a":1}'
    assert client.transcript.text() == "hello"


async def test_an_observer_that_fails_or_waits_for_an_answer_stops_nothing(chain):
    errors = []

    class Broken(Proxy):
        @on("*")
        async def see(self, message):
            try:
                await self.agent.request("_own", {})
            except LocalProtocolError as exc:
                errors.append(str(exc))
            raise ValueError("broken")

    async with chain(Broken(), FakeAgent(turns=[["hello"]])) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    *told, answer = filter(None, client.transcript.text().splitlines())
    line = inspect.getsourcelines(Broken)[1] + len(inspect.getsourcelines(Broken)[0]) - 1
    assert answer == "hello"
    assert told == [
        f"[acp-conductor] Broken failed in {method}: ValueError: broken (test_author_api.py:{line})"
        for method in ("session/new", "session/prompt")  # once before the first turn, once in it
    ]
    assert "an observer holds its lane and may not wait for a response" in errors[0]


async def test_an_observer_beside_handlers_of_its_own(chain):
    class Both(Watcher):
        @on("session/update")
        async def drop(self, params, forward):
            pass

    watcher = Both()
    async with chain(watcher, FakeAgent(turns=[["hello"]])) as client:
        await client.initialize()
        session = await client.new_session("/work")
        await client.prompt(session, "hi")

    assert [m.method for m in watcher.seen if m.kind == "notification"] == ["session/update"]
    assert client.transcript.text() == ""


class Numbered(Watcher):
    """Forwards, answers itself, and asks on its own, with an observer beside."""

    @on("_forwarded", source="client")
    async def forwarded(self, params, forward):
        return await forward()

    @on("_own", source="client")
    async def own(self, params, forward):
        await self.agent.request("_asked", {})
        return {}


async def test_a_forwarded_request_and_its_response_have_the_same_number(chain):
    watcher = Numbered()
    handlers = {"_forwarded": lambda params: {}, "_asked": lambda params: {}}
    async with chain(watcher, FakeAgent(handlers=handlers)) as client:
        await client.initialize()
        await client.request("_forwarded", {})
        await client.request("_own", {})
        await client.request("_forwarded", {})

    shown = [(m.kind, m.method, m.number) for m in watcher.seen if m.method[0] == "_"]
    assert shown == [
        ("request", "_forwarded", 2),
        ("response", "_forwarded", 2),
        ("request", "_own", 3),
        ("response", "_asked", 4),
        ("request", "_forwarded", 5),
        ("response", "_forwarded", 5),
    ]


# -- what does not fit -----------------------------------------------------------------------------


class Typed(Proxy):
    @on("session/prompt")
    async def prompt(self, request: v1.PromptRequest, forward):
        return await forward(request)

    @on("_plain")
    async def plain(self, params, forward):
        return await forward(params)


class Lenient(Typed):
    on_error = "pass"


@pytest.mark.parametrize(
    ("method", "params"), [("session/prompt", {"prompt": 5}), ("_plain", [1, 2])]
)
async def test_params_that_do_not_fit_are_refused(chain, method, params):
    async with chain(Typed(), FakeAgent()) as client:
        await client.initialize()
        with pytest.raises(RequestError) as caught:
            await client.request(method, params)

    assert caught.value.code == -32602
    assert caught.value.message.startswith(f"Invalid params for {method}: ")


async def test_an_observer_forwards_params_that_do_not_fit(chain):
    async with chain(Lenient(), FakeAgent(handlers={"_plain": lambda params: params})) as client:
        await client.initialize()

        assert await client.request("_plain", [1, 2]) == [1, 2]


async def test_requests_outside_of_a_chain_raise():
    with pytest.raises(LocalProtocolError) as caught:
        await AddContext("x").client.say("s", "hello")
    assert str(caught.value) == "AddContext.client works only while the plugin runs in a chain"


@pytest.mark.slow
async def test_invented_sessions_do_not_grow_the_state_nor_displace_that_of_a_real_one(chain):
    proxy = Counts()
    async with chain(proxy, FakeAgent()) as client:
        await client.initialize()
        real = await client.new_session("/a")
        await client.prompt(real, "hi")
        for number in range(1500):
            await client.prompt(f"invented-{number}", "hi")

        assert len(proxy.prompts) == 1001
        assert proxy.prompts[real] == [1]
        assert "invented-1499" in proxy.prompts
        assert "invented-499" not in proxy.prompts


@pytest.mark.slow
async def test_a_session_that_could_not_be_opened_is_not_kept_for_good(chain):
    def refuse(params):
        raise RequestError(-32002, "no such session")

    proxy = Counts()
    async with chain(proxy, FakeAgent(handlers={"session/load": refuse})) as client:
        await client.initialize()
        for number in range(1500):
            id = f"invented-{number}"
            await client.prompt(id, "hi")
            params = {"sessionId": id, "cwd": "/", "mcpServers": []}
            with pytest.raises(RequestError):
                await client.request("session/load", params)

        assert len(proxy.prompts) == 1000
