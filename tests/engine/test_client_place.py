"""What the conductor answers in the client's place: questions of cancelled turns, and requests for
what the client does not announce."""

from __future__ import annotations

import pytest
import trio
from support.played_chain import cancel_request, cancel_turn, played_chain, prompt

from conductor.acp import PROMPT

BOTH = pytest.mark.parametrize("version", [1, 2])
ASKS = {"elicitation": {"form": {}, "url": {}}}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
PERMISSION = "session/request_permission"
QUESTIONS = {
    PERMISSION: (
        {"toolCall": {"toolCallId": "t", "title": "rm"}, "options": []},
        {"outcome": {"outcome": "cancelled"}},
    ),
    "elicitation/create": (
        {"mode": "form", "message": "Name?", "requestedSchema": SCHEMA},
        {"action": "cancel"},
    ),
}
each_question = pytest.mark.parametrize("method", QUESTIONS)


def question(id, method=PERMISSION, session="s1"):
    return {"id": id, "method": method, "params": {"sessionId": session, **QUESTIONS[method][0]}}


def cancelled(id, method=PERMISSION):
    return {"id": id, "result": QUESTIONS[method][1]}


# -- questions of cancelled turns ------------------------------------------------------------------


@BOTH
@each_question
async def test_an_open_question_is_answered_shortly_after_the_turn_was_cancelled(
    tmp_path, version, method, autojump_clock
):
    """The client has forgotten it. Its late answer is dropped; other sessions go on."""
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open("s1", "s2", client_able=ASKS)
        await chain.prompt(1)
        await chain.prompt(2, "s2")
        chain.agent.send(question("q", method), question("other", method, "s2"))
        asked, other = await chain.client.receive_all()
        chain.client.send(cancel_turn())
        await trio.sleep(0.9)
        assert await chain.agent.receive_all() == [cancel_turn()]

        await trio.sleep(0.2)

        assert await chain.agent.receive_all() == [cancelled("q", method)]
        withdrawn = {"method": "$/cancel_request", "params": {"requestId": asked["id"]}}
        assert await chain.client.receive_all() == [withdrawn]
        chain.client.answer(asked, {"late": True})
        chain.client.answer(other, {"in time": True})
        await trio.sleep(5)
        assert await chain.agent.receive_all() == [{"id": "other", "result": {"in time": True}}]
        (late,) = chain.events("late answer dropped")
        assert (late["method"], late["sender"]) == (method, "client")


async def test_a_prompt_that_is_cancelled_as_a_request_leaves_no_question_open(
    tmp_path, autojump_clock
):
    """But if another prompt is open, the question may be of that."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", "s2")
        for id, session in ((1, "s1"), (2, "s2"), (3, "s2")):
            await chain.prompt(id, session)
        chain.agent.send(question("q"), question("other", session="s2"))
        assert len(await chain.client.receive_all()) == 2
        chain.client.send(cancel_request(1), cancel_request(2))
        await trio.sleep(2)
        answers = [each for each in await chain.agent.receive_all() if "result" in each]
        assert answers == [cancelled("q")]


@BOTH
async def test_a_client_that_answers_its_open_questions_itself_is_heard(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        chain.agent.send(question("q"))
        asked = await chain.client.receive()
        chain.client.send(cancel_turn(), {"id": asked["id"], "result": {"outcome": "mine"}})
        assert await chain.agent.receive_all() == [
            cancel_turn(),
            {"id": "q", "result": {"outcome": "mine"}},
        ]
        chain.finish(request, reason="cancelled")
        await trio.sleep(5)
        assert await chain.agent.receive_all() == []
        assert len(await chain.client.receive_all()) == 1


@BOTH
@each_question
async def test_a_question_that_comes_after_the_cancellation_is_answered_at_once(
    tmp_path, version, method, autojump_clock
):
    """And the user is not asked, until the turn has ended."""
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", client_able=ASKS)
        request = await chain.prompt(1)
        chain.client.send(cancel_turn())
        await chain.expect("session/cancel")
        chain.agent.send(question("q", method))
        assert await chain.agent.receive() == cancelled("q", method)
        await chain.client.receive_nothing()

        chain.finish(request, reason="cancelled")
        assert len(await chain.client.receive_all()) == 1
        chain.agent.send(question("later", method))
        assert (await chain.client.receive())["method"] == method
        await trio.sleep(5)
        await chain.agent.receive_nothing()


@BOTH
async def test_a_prompt_after_the_cancellation_may_ask(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.client.send(cancel_turn(), prompt(2))
        assert [each["method"] for each in await chain.agent.receive_all()] == [
            "session/cancel",
            PROMPT,
        ]
        chain.agent.send(question("q"))
        assert (await chain.client.receive())["method"] == PERMISSION
        await trio.sleep(5)
        await chain.agent.receive_nothing()


async def test_a_prompt_that_waited_for_the_end_of_the_cancelled_turn_may_ask(
    tmp_path, autojump_clock
):
    """`queue` keeps it if only the running turn is cancelled."""
    queue = {"use": "queue", "with": {"cancel": "running"}}
    async with played_chain(tmp_path, None, {"name": "queue", **queue}) as chain:
        await chain.open("s1")
        first = await chain.prompt(1)
        chain.client.send(prompt(2), cancel_turn())
        await chain.expect("session/cancel")
        chain.finish(first, reason="cancelled")
        await chain.expect(PROMPT)
        await chain.client.receive_all()
        chain.agent.send(question("q"))
        assert (await chain.client.receive())["method"] == PERMISSION


@pytest.mark.parametrize("version", [1, 2])
async def test_a_question_between_turns_is_cancelled_with_the_session_in_version_1(
    tmp_path, version, autojump_clock
):
    """In version 2 a cancellation is for the turn, and work in the background may go on asking."""
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1")
        chain.agent.send(question("q"))
        await chain.client.receive()
        chain.client.send(cancel_turn())
        await trio.sleep(5)
        came = await chain.agent.receive_all()
        assert came == [cancel_turn(), *([cancelled("q")] if version == 1 else [])]


async def test_a_question_of_a_turn_that_the_agent_has_only_accepted_is_cancelled(
    tmp_path, autojump_clock
):
    """In version 2 it has not reported yet that it runs, or never does."""
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open("s1")
        chain.client.send(prompt(1))
        chain.agent.answer(await chain.expect(PROMPT), {"messageId": "m1"})
        chain.agent.send(question("q"))
        assert len(await chain.client.receive_all()) == 2
        chain.client.send(cancel_turn())
        await trio.sleep(2)
        assert await chain.agent.receive_all() == [cancel_turn(), cancelled("q")]


@pytest.mark.parametrize("use", ["permissions", "cursor_questions", "local_terminals"])
async def test_plugins_that_ask_the_user_are_answered(tmp_path, use, autojump_clock):
    with_ = {"permissions": {"rules": [{"action": "ask"}]}}.get(use, {})
    proxy = {"name": use, "use": use, "with": with_}
    async with played_chain(tmp_path, None, proxy) as chain:
        await chain.open("s1")
        await chain.prompt(1)
        chain.agent.send(question("q"))
        await chain.client.receive_all()
        chain.client.send(cancel_turn())
        await trio.sleep(2)
        assert await chain.agent.receive_all() == [cancel_turn(), cancelled("q")]


# -- what the client does not announce -------------------------------------------------------------

UNANNOUNCED = {
    "fs/read_text_file": "fs.readTextFile",
    "fs/write_text_file": "fs.writeTextFile",
    "terminal/create": "terminal",
    "terminal/wait_for_exit": "terminal",
    "elicitation/create": "elicitation",
}
FULL = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, **ASKS}


@BOTH
async def test_a_request_for_what_the_client_does_not_announce_is_refused_in_its_place(
    tmp_path, version, autojump_clock
):
    """Many clients never answer it. Extensions and permissions need no announcement."""
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open("s1", client_able={"fs": {"readTextFile": False}, "terminal": None})
        chain.agent.send(
            *({"id": name, "method": name, "params": {"sessionId": "s1"}} for name in UNANNOUNCED)
        )
        refused = {each["id"]: each["error"] for each in await chain.agent.receive_all()}
        found = {name: each["data"]["capability"] for name, each in refused.items()}
        assert found == UNANNOUNCED
        assert {each["code"] for each in refused.values()} == {-32601}
        assert all(UNANNOUNCED[name] in error["message"] for name, error in refused.items())
        await chain.client.receive_nothing()

        passed = ["_vendor/fs", "_fs/read_text_file", PERMISSION, "mcp2/x"]
        chain.agent.send(*({"id": name, "method": name, "params": {}} for name in passed))
        assert [each["method"] for each in await chain.client.receive_all()] == passed


@BOTH
async def test_a_request_for_what_the_client_announces_reaches_it(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", client_able=FULL)
        chain.agent.send(
            *({"id": name, "method": name, "params": {"sessionId": "s1"}} for name in UNANNOUNCED)
        )
        assert [each["method"] for each in await chain.client.receive_all()] == [*UNANNOUNCED]


@BOTH
@pytest.mark.parametrize(("knows", "lacks"), [("form", "url"), ("url", "form")])
async def test_a_question_in_a_mode_that_the_client_does_not_announce_is_refused(
    tmp_path, version, knows, lacks, autojump_clock
):
    """With the code of the RFD for it; modes of vendors pass."""
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", client_able={"elicitation": {knows: {}}})
        modes = [lacks, knows, "_vendor"]
        chain.agent.send(
            *(
                {"id": mode, "method": "elicitation/create", "params": {"mode": mode}}
                for mode in modes
            )
        )
        (refused,) = await chain.agent.receive_all()
        assert (refused["id"], refused["error"]["code"]) == (lacks, -32602)
        assert refused["error"]["data"]["capability"] == f"elicitation.{lacks}"
        passed = [each["params"]["mode"] for each in await chain.client.receive_all()]
        assert passed == [knows, "_vendor"]


async def test_a_proxy_that_announces_files_answers_for_the_client(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    proxy = {"name": "files", "use": "local_files"}
    async with played_chain(tmp_path, None, proxy) as chain:
        await chain.initialize(clientCapabilities={})
        chain.client.send(
            {"id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
        )
        await chain.serve("session/new", {"sessionId": "s1"})
        await chain.client.receive()
        params = {"sessionId": "s1", "path": str(tmp_path / "a.txt")}
        chain.agent.send({"id": "r", "method": "fs/read_text_file", "params": params})
        assert await chain.agent.receive() == {"id": "r", "result": {"content": "hello"}}
        await chain.client.receive_nothing()
