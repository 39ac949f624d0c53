"""What a plugin's code raises is told to the user: in the chat, in words, once per turn."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import trio

from conductor import log
from conductor.errors import RequestError, withhold_details
from conductor.proxy import (
    Proxy,
    RawMessage,
    on,
    on_prompt,
    on_session,
    on_text,
    on_tool_start,
    on_turn_end,
    slash,
    text_filter,
)
from conductor.secrets.masking import register_secrets
from conductor.testing import FakeAgent, open_chain

HERE = "test_told_failures.py"
CALL = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "status": "pending"}


@pytest.fixture
def logged(monkeypatch):
    """Events of the log, with their fields."""
    found = []
    monkeypatch.setattr(log, "_level", log.LEVELS["error"])
    monkeypatch.setattr(log, "_emit", lambda _, *what: found.append(what))
    return found


def line_of(function, offset=1):
    """The line of the author's file that raises."""
    return f"({HERE}:{function.__code__.co_firstlineno + offset})"


async def talk(client, *prompts, version=1, capabilities=None):
    """Open a session and take turns in it; the ends of the turns."""
    await client.initialize(version=version, capabilities=capabilities or {})
    session = await client.new_session("/")
    ends = [await client.prompt_turn(session, each) for each in prompts]
    await trio.testing.wait_all_tasks_blocked()
    return ends


def told(client):
    """What the conductor has told: title, and description."""
    notices = [u for u in client.transcript.updates() if u["sessionUpdate"] == "notice"]
    assert all(each["severity"] == "error" for each in notices)
    return [(each["title"], each.get("description")) for each in notices]


NOTICES = {"session": {"notices": {}}}


class Shout(Proxy):
    @on_text
    async def shout(self, session, text):
        return text.uper()


SHOUT = f"Shout failed in on_text: AttributeError: 'str' object has no attribute 'uper' \
{line_of(Shout.shout, 2)}"
NOT_SHOWN = "what it could not handle is not shown"


async def test_a_client_without_notices_reads_it_as_a_message_once_per_turn():
    agent = FakeAgent(turns=[["one ", "two "], ["three ", "four "]])
    async with open_chain(Shout(), agent) as client:
        await talk(client, "a", "b")
        text = client.transcript.text()

    assert text == f"\n\n[acp-conductor] {SHOUT}; {NOT_SHOWN}\n\n" * 2


@pytest.mark.parametrize("version", [1, 2])
async def test_a_client_with_notices_gets_one_per_turn(version):
    agent = FakeAgent(turns=[["one ", "two "], ["three ", "four "]])
    async with open_chain(Shout(), agent) as client:
        await talk(client, "a", "b", version=version, capabilities=NOTICES)
        assert told(client) == [(f"[acp-conductor] {SHOUT}", NOT_SHOWN)] * 2
        assert client.transcript.text() == ""


async def test_the_log_has_one_traceback_and_then_counts(logged):
    async with open_chain(Shout(), FakeAgent(turns=[["word "] * 23])) as client:
        await talk(client, "a")
        assert [(event, fields.get("times")) for event, fields in logged] == [
            ("handler failed", None),
            ("failed again", 10),
        ]
        assert "exc_info" in logged[0][1]
    assert logged[-1][1]["error"] == "AttributeError"


class Passes(Shout):
    on_error = "pass"


async def test_with_on_error_pass_the_text_is_shown_and_the_failure_told():
    async with open_chain(Passes(), FakeAgent(turns=[["one ", "two "]])) as client:
        await talk(client, "a", capabilities=NOTICES)
        assert client.transcript.text() == "one two "
        assert told(client)[0][1] == "it was passed on unchanged"


class Tools(Proxy):
    @on_tool_start
    async def raises(self, session, call):
        raise OSError("disk")


class Turns(Proxy):
    @on_turn_end
    async def raises(self, session, end):
        raise OSError("disk")


class Opened(Proxy):
    @on_session
    async def raises(self, session):
        raise OSError("disk")


class Observes(Proxy):
    @on("*")
    async def raises(self, message: RawMessage):
        if message.method == "session/prompt":
            raise OSError("disk")


class Updates(Proxy):
    @on("session/update")
    async def raises(self, update: dict, forward):
        raise OSError("disk")


class Tasks(Proxy):
    @on_prompt
    async def work(self, session, prompt, forward):
        self.start_soon(self.raises)
        return await forward()

    async def raises(self):
        raise OSError("disk")


class Callbacks(Proxy):
    @on_prompt
    async def work(self, session, prompt, forward):
        self.agent.ask("_x", {}, self.raises)
        return await forward()

    def raises(self, result, error):
        raise OSError("disk")


class Helpers(Proxy):
    """Fails in a function that its handler calls."""

    @on_turn_end
    async def ended(self, session, end):
        await self.raises()

    async def raises(self):
        raise OSError("disk")


WHERE = {
    Tools: "on_tool_start",
    Turns: "on_turn_end",
    Opened: "on_session",
    Observes: "session/prompt",
    Updates: "session/update",
    Tasks: "raises",
    Callbacks: "raises",
    Helpers: "on_turn_end",
}


@pytest.mark.parametrize("cls", WHERE, ids=lambda cls: cls.__name__)
async def test_whatever_code_of_the_plugin_fails_is_told_with_its_handler_and_line(cls):
    async with open_chain(cls(), FakeAgent(turns=[[CALL]])) as client:
        ends = await talk(client, "a", capabilities=NOTICES)
        titles = [title for title, _ in told(client)]
    code = cls.raises.__code__
    line = max(line for *_, line in code.co_lines() if line)
    name = cls.__name__
    assert titles == [
        f"[acp-conductor] {name} failed in {WHERE[cls]}: OSError: disk ({HERE}:{line})"
    ]
    assert ends[0]["stopReason"] == "end_turn"


class Prompts(Proxy):
    @on_prompt
    async def add(self, session, prompt, forward):
        raise KeyError("no notes")


class Commands(Proxy):
    @slash("notes", "Show notes")
    async def show(self, session, arguments):
        raise KeyError("no notes")


@pytest.mark.parametrize(
    ("cls", "where", "function"),
    [(Prompts, "on_prompt", Prompts.add), (Commands, "/notes", Commands.show)],
)
async def test_the_error_of_a_request_says_why_in_its_message_and_in_the_chat(cls, where, function):
    async with open_chain(cls(), FakeAgent()) as client:
        with pytest.raises(RequestError) as caught:
            await talk(client, "/notes", capabilities=NOTICES)
        title = f"{cls.__name__} failed in {where}: KeyError: 'no notes' {line_of(function, 2)}"
        assert (caught.value.message, caught.value.data["reason"]) == (title, title)
        assert told(client) == [(f"[acp-conductor] {title}", None)]


class Early(Proxy):
    @on("initialize")
    async def begin(self, params: dict, forward):
        self.start_soon(self.load)
        return await forward()

    async def load(self):
        raise OSError("disk")


async def test_a_failure_before_there_is_a_session_is_told_with_the_first_prompt():
    async with open_chain(Early(), FakeAgent(turns=[["hello"]])) as client:
        await talk(client, "a", "b")
        text = client.transcript.text()
    title = f"Early failed in load: OSError: disk {line_of(Early.load)}"
    assert text == f"\n\n[acp-conductor] {title}\n\nhello"


class Leaks(Proxy):
    @on_text
    async def raises(self, session, text):
        raise ValueError("token hunter22-secret\nwas refused")


async def test_secrets_are_masked_and_the_text_is_one_line():
    register_secrets(["hunter22-secret"])
    async with open_chain(Leaks(), FakeAgent(turns=[["hello"]])) as client:
        await talk(client, "a")
        assert "ValueError: token *** was refused (" in client.transcript.text()


async def test_a_remote_client_is_told_without_details_of_this_machine():
    with withhold_details():
        async with open_chain(Prompts(), FakeAgent()) as client:
            with pytest.raises(RequestError) as caught:
                await talk(client, "a", capabilities=NOTICES)
            title = "Prompts failed in on_prompt"
            assert (caught.value.message, told(client)) == (
                f"{title}; the server's log says why",
                [(f"[acp-conductor] {title}; the server's log says why", None)],
            )


async def test_an_isolated_plugin_tells_through_its_own_chain(tmp_path):
    (tmp_path / "exc.py").write_text(
        "from conductor.proxy import Proxy, on_text\n\n\nclass Exc(Proxy):\n    @on_text\n"
        "    async def shout(self, session, text):\n        return text.uper()\n"
    )
    proxies = "[{use: ./exc.py:Exc, name: shouts, isolate: true}]"
    (tmp_path / "chain.yaml").write_text(f"version: 1\nproxies: {proxies}\nagent: {{run: [x]}}\n")
    async with open_chain(tmp_path / "chain.yaml", FakeAgent(turns=[["a", "b"]])) as client:
        await talk(client, "a", capabilities=NOTICES)
        title = "[acp-conductor] shouts failed in on_text: AttributeError"
        ((got, detail),) = told(client)
        assert (got.startswith(title), got.endswith("(exc.py:7)"), detail) == (1, 1, NOT_SHOWN)


class Sleeps(Proxy):
    @on_prompt
    async def wait(self, session, prompt, forward):
        await asyncio.sleep(0.1)
        return await forward()


async def test_asyncio_in_a_handler_is_explained():
    async with open_chain(Sleeps(), FakeAgent()) as client:
        with pytest.raises(RequestError, match=r"plugins run on trio: write `trio.sleep\(…\)`"):
            await talk(client, "a")


class Reads(Proxy):
    @on("session/update")
    async def read(self, params: dict, forward):
        raise KeyError(params["update"]["title"])


async def test_an_update_that_does_not_fit_is_told_as_a_mistake_of_its_sender():
    agent = FakeAgent(turns=[[lambda id: agent.update(id, {**CALL, "toolCallId": 7})]])
    async with open_chain(Reads(), agent) as client:
        await talk(client, "a", capabilities=NOTICES)
        assert told(client) == [
            (
                "[acp-conductor] Reads cannot read it: Invalid params for session/update: "
                "update.toolCallId: expected string, got a number (sent by fake-agent)",
                NOT_SHOWN,
            )
        ]


class Holds:
    """Shows nothing before the text ends, and then fails."""

    def feed(self, text):
        return ""

    def end(self):
        raise OSError("disk")


class Filters(Proxy):
    @text_filter("agent")
    def hold(self, session):
        return Holds()


@pytest.mark.parametrize("cls", [Updates, Filters])
async def test_a_turn_of_version_2_ends_although_no_update_could_be_handled(cls, autojump_clock):
    async with open_chain(cls(), FakeAgent(turns=[["hello"]])) as client:
        with trio.fail_after(3600):
            ends = await talk(client, "a", version=2, capabilities=NOTICES)
        assert ends[0]["stopReason"] == "end_turn"
        assert [detail for _, detail in told(client)] == [NOT_SHOWN]
        assert client.transcript.text() == ""


async def test_half_an_emoji_in_the_last_state_ends_the_turn_as_well(autojump_clock):
    idle = {"state": "idle", "stopReason": "end_turn", "_meta": {"x": "\ud83d"}}
    states = ({"sessionUpdate": "state_update", **each} for each in ({"state": "running"}, idle))
    async with open_chain(Updates(), FakeAgent(turns=[[*states]])) as client:
        with trio.fail_after(3600):
            ends = await talk(client, "a", version=2, capabilities=NOTICES)
        assert ends[0]["stopReason"] == "end_turn"


class Cancels(Proxy):
    @on("session/cancel")
    async def raises(self, params: dict, forward):
        raise OSError("disk")


async def test_a_cancellation_reaches_the_agent_although_its_handler_failed():
    agent = FakeAgent()
    async with open_chain(Cancels(), agent) as client:
        await client.initialize(capabilities=NOTICES)
        session = await client.new_session("/")
        client.cancel(session)
        await trio.testing.wait_all_tasks_blocked()
        assert [each.label for each in agent.transcript.of("session/cancel")] == ["session/cancel"]
        assert told(client)[0][1] == "it was passed on unchanged"


class Watches(Proxy):
    required = True

    def __init__(self):
        self.gone = trio.Event()

    @asynccontextmanager
    async def lifespan(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            yield
            nursery.cancel_scope.cancel()

    async def watch(self):
        await self.gone.wait()
        raise OSError("database gone")


async def test_the_end_of_a_chain_between_turns_is_told(autojump_clock):
    proxy = Watches()
    async with open_chain(proxy, FakeAgent(turns=[["hello"]])) as client:
        await talk(client, "a", capabilities=NOTICES)
        await trio.sleep(1)
        proxy.gone.set()
        await client.ended.wait()
        why = f"component 'Watches' failed: OSError: database gone {line_of(Watches.watch, 2)}"
        assert told(client) == [(f"[acp-conductor] {why}", "the chain ends")]


async def test_a_session_with_a_prompt_that_was_answered_just_now_is_not_told(autojump_clock):
    """The answer may be the error of the same failure."""
    proxy = Watches()
    async with open_chain(proxy, FakeAgent(turns=[["hello"]])) as client:
        await talk(client, "a", capabilities=NOTICES)
        proxy.gone.set()
        await client.ended.wait()
        assert told(client) == []


class Needs(Proxy):
    @on_prompt
    async def read(self, session, prompt, forward):
        await self.client.read_text_file(session.id, "/notes")
        return await forward()


async def test_a_request_that_the_client_does_not_take_is_told_with_the_plugin_that_made_it():
    """The error of the prompt stays that of the request, in each plugin before that one."""

    class Passes(Proxy):
        @on_prompt
        async def passes(self, session, prompt, forward):
            return await forward()

    async with open_chain(Passes(), Needs(), FakeAgent()) as client:
        await client.initialize(capabilities=NOTICES)
        session = await client.new_session("/work")
        with pytest.raises(RequestError) as caught:
            await client.prompt(session, "a")
        ((title, _),) = told(client)

    lacks = "Method not found: the client does not announce the capability fs.readTextFile"
    assert (caught.value.code, caught.value.message) == (-32601, lacks)
    assert title.startswith(f"[acp-conductor] Needs failed in on_prompt: RequestError: {lacks}")
