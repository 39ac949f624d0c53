"""What docs/reliability.md promises of failed components and restarted agents (virtual clock)."""

from __future__ import annotations

import json

import pytest
import trio
from support.peers.wire import Peer
from support.played_chain import (
    cancel_request,
    cancel_turn,
    played_chain,
    prompt,
    said,
    state,
    told,
    update,
)

BOTH = pytest.mark.parametrize("version", [1, 2])
RESUMES = {"sessionCapabilities": {"resume": {}}}
LOADS = {"loadSession": True}
QUESTION = {"method": "session/request_permission", "params": {"sessionId": "s1"}}
RESTARTED = "[acp-conductor] agent failed, was restarted"
LOST = "agent was restarted and has lost this session; start a new one, or load it"


# -- every unanswered request gets an error --------------------------------------------------------


async def test_each_unanswered_request_gets_an_error_with_cause_stderr_place_and_what_is_next(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        chain["agent"].print("of the start")
        await trio.testing.wait_all_tasks_blocked()
        first = await chain.prompt(1)
        chain.finish(first)
        await chain.client.receive()
        await chain.prompt(2)
        chain.client.send({"id": 3, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        await chain.expect("session/set_mode")
        chain["agent"].print("out of memory")

        await chain["agent"].exit(3)

        answers = {each["id"]: each["error"] for each in await chain.client.receive_all()}
        prompted, other = answers.pop(2), answers.pop(3)
        assert answers == {}
        assert prompted["code"] == other["code"] == -32603
        for each in (prompted, other):  # some clients show these instead
            assert each["data"].pop("details") == each["message"]
        assert prompted["data"] == other["data"]
        place = prompted["data"].pop("place")
        assert place.startswith(f"{tmp_path}/chain.yaml:")
        assert prompted["data"] == {
            "component": "agent",
            "exitStatus": "exited with status 3",
            "stderr": ["out of memory"],
            "next": "it is restarted (1 of 3)",
        }
        assert other["message"] == "component 'agent' exited with status 3: out of memory"
        assert (
            "exited with status 3: out of memory. "
            "The prompt was cut off and is not repeated; part of it may have been done. "
            "What happens now: it is restarted (1 of 3). What to do: look at what was done, then "
            "send it again, in a new session"
        ) in prompted["message"]


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (["  raise KeyError(name)", "KeyError: 'model'"], "KeyError: 'model'"),
        (
            ["Error: boom {", "    at main (a.js:1:7)", "}", "", "Node.js v22.1.0"],
            "Error: boom {",
        ),
        (["token sk-ant-api03-" + "a" * 80], "token ***"),
        (["x" * 5000], "x" * 199 + "…"),
    ],
)
async def test_the_chat_names_what_an_agent_last_said_of_its_failure(
    tmp_path, printed, line, autojump_clock
):
    """In the error of the turn, and in the notice; masked, and cut."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES)
        await chain.prompt(1)
        for each in printed:
            chain["agent"].print(each)

        await chain["agent"].exit(1)

        error = (await chain.client.receive())["error"]
        assert error["message"].startswith(f"component 'agent' exited with status 1: {line}. The")
        await chain.restart_agent("s1", able=RESUMES)
        notice = f"[acp-conductor] agent failed ({line}), was restarted"
        assert told(await chain.client.receive()) == ("s1", notice)


async def test_stderr_before_a_refused_prompt_explains_a_later_failure(tmp_path, autojump_clock):
    """Only what was printed before a turn that ended well does not."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        chain["agent"].print("before a good turn")
        await trio.testing.wait_all_tasks_blocked()
        chain.finish(await chain.prompt(1))
        await chain.client.receive()
        chain["agent"].print("disk full")
        await trio.testing.wait_all_tasks_blocked()
        chain.agent.refuse(await chain.prompt(2), -32603, "no")
        await chain.client.receive()
        await chain.prompt(3)

        await chain["agent"].exit(3)

        error = (await chain.client.receive())["error"]
        assert "disk full" in json.dumps(error)
        assert "before a good turn" not in json.dumps(error)


async def test_in_version_2_the_state_idle_of_the_turn_has_the_error(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, version=2) as chain:
        await chain.open("s1", "s2")
        await chain.prompt(1)
        chain.finish(await chain.prompt(2, "s2"), "s2")
        assert await chain.client.receive() == state("idle", "s2", stopReason="end_turn")

        await chain["agent"].exit(3)

        (idle,) = await chain.client.receive_all()
        error = idle["params"]["update"].pop("error")
        assert idle == state("idle", "s1", stopReason="error")
        assert error["code"] == -32603
        assert error["data"]["component"] == "agent"
        assert "The prompt was cut off" in error["message"]


@BOTH
async def test_nothing_is_sent_again_after_a_restart(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", able=RESUMES)
        await chain.prompt(1)
        chain.client.send({"method": "_note"})
        await chain.expect("_note")
        await chain["agent"].end()
        await chain.client.receive()

        await chain.restart_agent("s1", able=RESUMES)

        assert await chain.agent.receive_all() == []


async def test_a_prompt_that_never_reached_the_agent_says_so(tmp_path, autojump_clock):
    """It waits for a restart that fails for good."""
    async with played_chain(tmp_path, {"restarts": "1 in 60s"}) as chain:
        await chain.open("s1", able=RESUMES)
        await chain["agent"].end()
        chain.client.send(prompt(1))
        await chain.expect("initialize")
        await chain["agent"].end()

        error = (await chain.client.receive())["error"]

        assert "The prompt did not reach the agent." in error["message"]
        assert error["message"].endswith("What to do: start the agent again; send it again.")
        assert (await chain.wait_ended()).reason == "failed"


# -- its own requests, and those of others ---------------------------------------------------------


async def test_open_requests_of_a_failed_agent_are_cancelled_at_the_client(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1")
        chain.agent.send({"id": "q", **QUESTION})
        question = await chain.client.receive()

        await chain["agent"].end()

        assert await chain.client.receive_all() == [cancel_request(question["id"])]


@BOTH
async def test_the_turn_of_a_prompt_that_a_failed_proxy_sent_on_is_cancelled(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "a"}, {"name": "b"}, version=version) as chain:
        await chain.open("s1")
        chain.client.send(prompt(1))
        request = await chain.expect("session/prompt")

        await chain["b"].end()

        error = (await chain.client.receive())["error"]
        assert error["data"]["component"] == "b"
        assert await chain.agent.receive_all() == [cancel_request(request["id"]), cancel_turn()]


PASSES = """
from conductor.proxy import Proxy, on


class Passes(Proxy):
    @on("session/prompt")
    async def prompt(self, params: dict, forward):
        return await forward()
"""


async def test_the_turn_of_a_failed_proxy_is_cancelled_behind_a_plugin_too(
    tmp_path, autojump_clock
):
    (tmp_path / "passes.py").write_text(PASSES)
    plugin = {"use": "./passes.py:Passes", "name": "h"}
    async with played_chain(tmp_path, None, {"name": "p"}, plugin) as chain:
        await chain.open("s1")
        request = await chain.prompt(1)
        await chain["p"].end()

        assert await chain.agent.receive_all() == [cancel_request(request["id"]), cancel_turn()]


async def test_other_requests_continue(tmp_path, autojump_clock):
    """A proxy that does not fail has its question answered, and so has the client."""
    async with played_chain(tmp_path, None, {"name": "p"}, peers={"p": Peer}) as chain:
        chain.client.send({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
        inner = {"method": "initialize", "params": {"protocolVersion": 1}}
        asked = await chain.expect("proxy/initialize", "p")
        proxy = chain["p"].peer
        proxy.send({"id": "i", "method": "proxy/successor", "params": inner})
        await chain.serve("initialize", {"protocolVersion": 1})
        proxy.answer(asked, (await proxy.receive())["result"])
        await chain.client.receive()
        chain.client.send({"id": 1, "method": "_of_the_proxy"})
        request = await chain.expect("_of_the_proxy", "p")
        proxy.send({"id": "q", **QUESTION})
        question = await chain.client.receive()

        await chain["agent"].end()

        proxy.answer(request, {"x": 1})
        chain.client.answer(question, {"y": 2})
        assert await chain.client.receive_all() == [{"id": 1, "result": {"x": 1}}]
        assert await proxy.receive_all() == [{"id": "q", "result": {"y": 2}}]


# -- on_failure ------------------------------------------------------------------------------------


async def test_restarts_come_after_growing_delays_until_the_budget_is_spent(
    tmp_path, autojump_clock
):
    """Each delay is reduced by up to a half at random; then the chain ends without its agent."""
    async with played_chain(tmp_path, {"restarts": "6 in 1h"}) as chain:
        await chain.open()
        program = chain.programs["agent"]
        delays = []
        for _ in range(6):
            failed = trio.current_time()
            await chain["agent"].end()
            await program.wait_started()
            delays.append(program.times[-1] - failed)
        await chain["agent"].end()

        assert (await chain.wait_ended()).reason == "failed"
        for delay, longest in zip(delays, [0.1, 0.4, 1.6, 6.4, 10, 10], strict=True):
            assert longest / 2 <= delay <= longest
        texts = [fields["next"] for fields in chain.events("component failed")]
        assert texts == [*(f"it is restarted ({n} of 6)" for n in range(1, 7)), "the chain ends"]


async def test_a_component_that_failed_long_ago_has_its_whole_budget(tmp_path, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open()
        for _ in range(5):
            await chain["p"].end()
            await trio.sleep(61)

        texts = [fields["next"] for fields in chain.events("component failed")]
        assert texts == ["it is restarted (1 of 3)"] * 5


async def test_the_chain_ends_with_an_agent_that_is_not_restarted(tmp_path, autojump_clock):
    """All open requests are answered first."""
    async with played_chain(tmp_path, {"on_failure": "end_chain"}, {"name": "p"}) as chain:
        await chain.open("s1", "s2")
        await chain.prompt(1)
        await chain.prompt(2, "s2")
        await chain["agent"].exit(1)

        assert (await chain.wait_ended()).reason == "failed"
        answers = await chain.client.receive_all()
        assert [each["id"] for each in answers] == [1, 2]
        assert {each["error"]["data"]["next"] for each in answers} == {"the chain ends"}


async def test_the_chain_ends_with_a_required_proxy(tmp_path, autojump_clock):
    keys = {"required": True, "restarts": "1 in 1h"}
    async with played_chain(tmp_path, None, {"name": "p", **keys}) as chain:
        await chain.open("s1")
        await chain["p"].end()
        told_of = told(await chain.client.receive())
        assert told_of == ("s1", "[acp-conductor] p failed, was restarted")
        await chain.prompt(1)

        await chain["p"].end()

        error = (await chain.client.receive())["error"]
        assert error["data"]["next"] == "the chain ends"
        assert (await chain.wait_ended()).reason == "failed"


async def test_a_component_that_closes_its_stdout_has_failed(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1")
        await chain.prompt(1)

        chain.agent.stays = True
        chain.agent.close()

        error = (await chain.client.receive())["error"]
        assert error["data"]["exitStatus"] == "closed its stdout"
        assert chain["agent"].status == "was ended by SIGKILL"


@BOTH
async def test_the_user_is_told_in_each_session_by_a_notice_if_the_client_shows_notices(
    tmp_path, version, autojump_clock
):
    async with played_chain(tmp_path, version=version) as chain:
        able = {"session": {"notices": {}}} if version == 1 else {}
        await chain.open("s1", "s2", able=RESUMES, client_able=able)
        await chain["agent"].end()
        await chain.restart_agent("s1", "s2", able=RESUMES)

        for session in ("s1", "s2"):
            notice = update("notice", session, severity="warning", title=RESTARTED)
            assert await chain.client.receive() == notice


# -- what waits for a restart ----------------------------------------------------------------------


@BOTH
async def test_messages_to_a_restarting_component_wait_in_order(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        await chain.open("s1", able=RESUMES)
        await chain["agent"].end()
        notes = [{"method": "_note", "params": {"n": n}} for n in range(3)]
        chain.client.send(notes[0], prompt(1), notes[1], cancel_turn(), notes[2])

        await chain.restart_agent("s1", able=RESUMES)

        came = await chain.agent.receive_all()
        assert [each["method"] for each in came] == [
            "_note",
            "session/prompt",
            "_note",
            "session/cancel",
            "_note",
        ]
        assert [came[0], came[2], came[4]] == notes


async def test_what_waits_for_a_restart_stops_those_who_send_it(tmp_path, autojump_clock):
    """The client is not read while the backlog is over its limit; nothing is lost."""
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1", able=RESUMES)
        await chain["agent"].end()
        await chain.expect("initialize")
        filler = "x" * 100_000
        notes = [{"method": "_note", "params": {"n": n, "x": filler}} for n in range(40)]
        chain.client.send(*notes)
        await trio.testing.wait_all_tasks_blocked()
        assert chain.client.unsent() > 1_000_000

        await chain["agent"].end()
        await chain.restart_agent("s1", able=RESUMES)

        assert await chain.agent.receive_all() == notes
        assert chain.client.unsent() == 0


# -- a restarted agent -----------------------------------------------------------------------------


@BOTH
async def test_a_restarted_agent_gets_the_same_initialize(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, None, {"name": "p"}, version=version) as chain:
        params = {"protocolVersion": version, "_meta": {"x": [1, None]}}
        first, _ = await chain.initialize(**params)

        await chain["agent"].end()

        assert (await chain.expect("initialize"))["params"] == first
        assert first.items() >= params.items()


@BOTH
async def test_another_protocol_version_fails_the_restart(tmp_path, version, autojump_clock):
    async with played_chain(tmp_path, version=version) as chain:
        await chain.open("s1", able=RESUMES)
        await chain["agent"].end()
        await chain.serve("initialize", {"protocolVersion": 3 - version})
        await trio.sleep(1)

        await chain.restart_agent("s1", able=RESUMES)

        _, second = chain.events("component failed")
        assert f"with protocol version {3 - version} after its restart" in second["error"]
        assert second["next"] == "it is restarted (2 of 3)"


@pytest.mark.parametrize("able", [RESUMES, LOADS, RESUMES | LOADS])
async def test_a_session_is_resumed_or_else_loaded_without_its_history(
    tmp_path, able, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open(able=able)
        server = {"name": "s", "command": "/bin/true", "args": [], "env": []}
        await chain.new_session("s1", mcpServers=[server])
        await chain["agent"].end()
        await chain.restart_agent(able=able)
        way = "session/resume" if "sessionCapabilities" in able else "session/load"

        request = await chain.expect(way)
        assert request["params"] == {"cwd": "/s1", "mcpServers": [server], "sessionId": "s1"}
        if way == "session/load":
            chain.agent.send(said("history"))
        chain.agent.answer(request)
        chain.agent.send(said("new"))

        texts = [told(each)[1] for each in await chain.client.receive_all()]
        assert sorted(texts) == [RESTARTED, "new"]


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("history", [[], ["history"]])
async def test_a_conversation_that_is_loaded_without_history_may_be_lost(
    tmp_path, prompted, history, autojump_clock
):
    """The user is told; not of a session that had none."""
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=LOADS)
        if prompted:
            chain.finish(await chain.prompt(1))
            await chain.client.receive()
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)
        request = await chain.expect("session/load")
        chain.agent.send(update("available_commands_update", availableCommands=[]))
        chain.agent.send(*map(said, history))

        chain.agent.answer(request, {})

        lost = (
            f"{RESTARTED}; the conversation of this session may be lost; "
            "it was loaded without any history: ask the agent what it remembers"
        )
        text = lost if prompted and not history else RESTARTED
        assert [told(each) for each in await chain.client.receive_all()] == [("s1", text)]
        chain.finish(await chain.prompt(2))
        assert (await chain.client.receive())["id"] == 2


async def test_a_conversation_that_the_user_had_loaded_may_be_lost_too(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open(able=LOADS)
        params = {"sessionId": "s1", "cwd": "/s1", "mcpServers": []}
        chain.client.send({"id": 1, "method": "session/load", "params": params})
        await chain.serve("session/load")
        await chain.client.receive()
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)

        await chain.serve("session/load")

        assert "may be lost" in told(await chain.client.receive())[1]


async def test_a_session_that_cannot_be_resumed_is_loaded(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES | LOADS)
        await chain["agent"].end()
        await chain.restart_agent(able=RESUMES | LOADS)
        await chain.refuse("session/resume", -32603, "on another machine")

        await chain.serve("session/load")

        assert told(await chain.client.receive()) == ("s1", RESTARTED)


async def test_in_version_2_a_session_is_only_resumed(tmp_path, autojump_clock):
    async with played_chain(tmp_path, version=2) as chain:
        await chain.open("s1", able=LOADS)
        await chain.whole_turn(0)
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)

        await chain.refuse("session/resume", -32603, "no")

        _, text = told(await chain.client.receive())
        assert "has lost this session" in text
        assert await chain.agent.receive_all() == []


@pytest.mark.parametrize("able", [{}, LOADS])
async def test_a_lost_session_gets_one_error_and_can_be_created_again(
    tmp_path, able, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1", able=able)
        await chain.whole_turn(0)
        await chain["agent"].end()
        await chain.restart_agent(able=able)
        if able:
            await chain.refuse("session/load", -32603, "unknown")
        _, text = told(await chain.client.receive())
        assert text == (
            "[acp-conductor] agent failed, was restarted and has lost this session; "
            "start a new one, or load it"
        )

        chain.client.send(prompt(1))

        error = (await chain.client.receive())["error"]
        assert (error["code"], error["message"]) == (-32603, LOST)
        assert error["data"]["sessionId"] == "s1"
        chain.client.send({"id": 4, "method": "session/set_mode", "params": {"sessionId": "s1"}})
        await chain.refuse("session/set_mode", -32602, "no such session")
        assert (await chain.client.receive())["error"]["message"] == "no such session"
        await chain.new_session("s1")
        chain.finish(await chain.prompt(2))
        assert await chain.client.receive() == {"id": 2, "result": {"stopReason": "end_turn"}}


async def test_a_lost_session_can_be_loaded_at_once(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=LOADS)
        await chain.whole_turn(0)
        await chain["agent"].end()
        await chain.restart_agent(able=LOADS)
        await chain.refuse("session/load", -32603, "not yet")
        await chain.client.receive()
        params = {"sessionId": "s1", "cwd": "/s1", "mcpServers": []}
        chain.client.send({"id": 1, "method": "session/load", "params": params})

        assert await chain.serve("session/load") == params
        assert await chain.client.receive() == {"id": 1, "result": {}}
        chain.finish(await chain.prompt(2))
        assert await chain.client.receive() == {"id": 2, "result": {"stopReason": "end_turn"}}


SET = [
    ("session/set_mode", {"sessionId": "s1", "modeId": "plan"}),
    ("session/set_model", {"sessionId": "s1", "modelId": "small"}),
    ("session/set_config_option", {"sessionId": "s1", "configId": "effort", "value": "low"}),
]


async def test_mode_model_and_options_are_set_again_with_the_values_last_reported(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path, None, {"name": "p"}) as chain:
        await chain.open("s1", able=RESUMES)
        for id, (method, params) in enumerate(SET):
            chain.client.send({"id": id, "method": method, "params": params})
            await chain.serve(method)
            await chain.client.receive()
        chain.agent.send(update("current_mode_update", currentModeId="code"))
        await chain.client.receive()

        await chain["agent"].end()
        await chain.restart_agent(able=RESUMES)
        await chain.serve("session/resume")

        again = {}
        for _ in SET:
            request = await chain.agent.receive()
            again[request["method"]] = request["params"]
            chain.agent.answer(request)
        assert again == dict(SET) | {"session/set_mode": {"sessionId": "s1", "modeId": "code"}}
        assert told(await chain.client.receive()) == ("s1", RESTARTED)


async def test_the_client_gets_the_real_mode_if_the_agent_refuses_to_set_it_again(
    tmp_path, autojump_clock
):
    async with played_chain(tmp_path) as chain:
        await chain.open("s1", able=RESUMES)
        method, params = SET[0]
        chain.client.send({"id": 1, "method": method, "params": params})
        await chain.serve(method)
        await chain.client.receive()
        await chain["agent"].end()
        await chain.restart_agent(able=RESUMES)
        modes = {"currentModeId": "ask", "availableModes": []}
        await chain.serve("session/resume", {"modes": modes})

        await chain.refuse(method, -32603, "no such mode")

        first, second = await chain.client.receive_all()
        assert first == update("current_mode_update", currentModeId="ask")
        assert told(second) == ("s1", RESTARTED)
        (event,) = chain.events("setting not restored")
        assert (event["session"], event["method"]) == ("s1", method)


SILENT = [
    {"methodId": "key"},
    {"methodId": "browser", "_meta": {"api-key": "k"}},
]
METHODS = [{"id": "key", "name": "Key", "type": "env_var"}, {"id": "browser", "name": "Browser"}]


async def log_in(chain, login):
    answer = {"protocolVersion": 1, "agentCapabilities": RESUMES, "authMethods": METHODS}
    await chain.initialize(answer)
    chain.client.send({"id": "in", "method": "authenticate", "params": login})
    await chain.serve("authenticate")
    await chain.client.receive()
    await chain.new_session("s1")
    await chain.whole_turn(0)
    await chain["agent"].end()
    await chain.serve("initialize", answer)


@pytest.mark.parametrize("login", SILENT)
async def test_a_login_that_needs_nothing_of_the_user_is_repeated(tmp_path, login, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await log_in(chain, login)

        request = await chain.expect("authenticate")
        assert request["params"] == login
        chain.agent.answer(request)
        await chain.serve("session/resume")

        assert told(await chain.client.receive()) == ("s1", RESTARTED)


async def test_any_other_login_is_left_to_the_user_who_is_told_why(tmp_path, autojump_clock):
    async with played_chain(tmp_path) as chain:
        await log_in(chain, {"methodId": "browser"})
        await chain.refuse("session/resume", -32000, "Authentication required")
        await chain.client.receive()

        chain.client.send(prompt(1))

        error = (await chain.client.receive())["error"]
        assert error["code"] == -32000
        assert error["message"] == (
            "agent was restarted and has lost its login: log in again, then load this session, or "
            "start a new one"
        )


async def test_a_login_is_not_repeated_after_a_logout(tmp_path, autojump_clock):
    answer = {"protocolVersion": 1, "agentCapabilities": RESUMES, "authMethods": METHODS}
    async with played_chain(tmp_path) as chain:
        await chain.initialize(answer)
        for method, params in [("authenticate", {"methodId": "key"}), ("logout", {})]:
            chain.client.send({"id": method, "method": method, "params": params})
            await chain.serve(method)
            assert (await chain.client.receive())["id"] == method
        await chain.new_session("s1")
        await chain["agent"].end()

        await chain.serve("initialize", answer)
        await chain.serve("session/resume")

        assert told(await chain.client.receive()) == ("s1", RESTARTED)


@pytest.mark.parametrize("step", ["initialize", "session/resume"])
async def test_each_step_of_a_restart_has_start_timeout(tmp_path, step, autojump_clock):
    async with played_chain(tmp_path, {"start_timeout": "5s"}) as chain:
        await chain.open("s1", able=RESUMES)
        await chain["agent"].end()
        if step == "session/resume":
            await chain.restart_agent(able=RESUMES)
        await chain.expect(step)
        asked = trio.current_time()

        await trio.sleep(4.9)
        assert chain["agent"].status is None
        await trio.sleep(0.2)

        assert [name for name, _ in chain.programs["agent"].processes[1].signals] == ["SIGKILL"]
        await chain.restart_agent("s1", able=RESUMES)
        error = chain.events("component failed")[1]["error"]
        assert "(start_timeout)" in error
        assert "'agent' it " not in error
        assert trio.current_time() - asked < 10


async def test_a_session_whose_set_up_is_not_kept_is_lost(tmp_path, autojump_clock):
    """`max_session_log_bytes` bounds the set-ups; the oldest are dropped."""
    limits = {"max_session_log_bytes": "600B"}
    async with played_chain(tmp_path, limits=limits) as chain:
        await chain.open(able=RESUMES)
        for session in ("s1", "s2"):
            await chain.new_session(session, _meta={"x": "y" * 400})
        await chain["agent"].end()
        await chain.restart_agent(able=RESUMES)

        assert (await chain.serve("session/resume"))["sessionId"] == "s2"

        texts = dict([told(each) for each in await chain.client.receive_all()])
        assert "has lost this session" in texts["s1"]
        assert texts["s2"] == RESTARTED
        await chain["agent"].end()
        await chain.restart_agent("s2", able=RESUMES)
        assert [told(each) for each in await chain.client.receive_all()] == [("s2", RESTARTED)]
