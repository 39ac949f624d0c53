"""Malformed messages: their sender is named, not the plugin whose handler cannot read them."""

from __future__ import annotations

import json
from copy import copy

import pytest
from support.peers.port import End, hop
from support.raw_json import dumps, nested

from conductor import log
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.limits import MAX_DEPTH
from conductor.proxy import (
    Proxy,
    on,
    on_cancel,
    on_mcp,
    on_permission,
    on_prompt,
    on_question,
    on_session,
    on_session_end,
    on_session_setup,
    on_text,
    on_tool_end,
    on_tool_start,
    on_turn_end,
    on_update,
    per_session,
    slash,
    text_filter,
)
from conductor.proxy.peers import text

KINDS = ("agent_message_chunk", "tool_call", "tool_call_update", "plan", "subagent_update")


class Setup(Proxy):
    @on_session_setup
    async def set_up(self, setup, forward):
        setup.mcp_servers = [*setup.mcp_servers, {"type": "acp", "name": setup.cwd, "id": "x"}]
        return await forward()


class Opened(Proxy):
    @on_session
    async def opened(self, session):
        [*session.additional_directories, session.cwd.upper(), *session.mcp_server_names]

    @on_session_end
    async def ended(self, session):
        session.id.upper()


class Prompted(Proxy):
    counts = per_session(list)

    @on_prompt
    async def prompted(self, session, prompt, forward):
        self.counts[session.id].append(prompt.text)
        prompt.blocks = [text("first"), *prompt.blocks]
        return await forward()

    @on_turn_end
    async def turn_ended(self, session, end):
        session.id.upper()

    @on_cancel
    async def cancelled(self, session):
        session.id.upper()


class Command(Proxy):
    @slash("do", "Do it")
    async def do(self, session, arguments):
        return f"{session.id}: {arguments}"


class Updated(Proxy):
    @on_update(*KINDS)
    async def updated(self, session, update, forward):
        update["by"] = session.id + update["sessionUpdate"]
        await forward()


class Streamed(Proxy):
    @on_text
    async def streamed(self, session, text):
        return text.upper()


class Upper:
    def feed(self, text):
        return text.upper()

    def end(self):
        return ""


class Filtered(Proxy):
    @text_filter("agent")
    def new_filter(self, session):
        return Upper()


class Tools(Proxy):
    @on_tool_start
    async def started(self, session, call):
        [each["path"].upper() for each in call.locations], call.title.upper(), call.kind.upper()
        [each.get("type") for each in call.content]

    on_tool_end(started)


class Permission(Proxy):
    @on_permission
    async def decide(self, session, asked, forward):
        if asked.tool_call is not None:
            [each["path"].upper() for each in asked.tool_call.locations]
            asked.tool_call.title.upper()
        return await forward({**asked.params, "by": session.id + str(asked.evidence)})


class Question(Proxy):
    @on_question
    async def asked(self, session, question, forward):
        return await forward({**question.params, "by": question.message.upper()})


class Mcp(Proxy):
    @on_mcp("tools/call")
    async def called(self, server, params, forward):
        return await forward({**params, "by": server.upper()})


class Plain(Proxy):
    @on("fs/read_text_file")
    async def read(self, params, forward):
        return await forward({**params, "path": params["path"].upper()})


CALL = {
    "toolCallId": "1",
    "title": "Read",
    "kind": "read",
    "status": "completed",
    "locations": [{"path": "/a", "line": 1}],
    "content": [{"type": "content", "content": {"type": "text", "text": "x"}}],
}
OPTION = {"optionId": "y", "name": "Yes", "kind": "allow_once"}
SERVER = {"type": "acp", "name": "tickets", "serverId": "i", "id": "i"}


def update(sort, **members):
    return {"sessionId": "s", "update": {"sessionUpdate": sort, **members}}


def text_block(words):
    return {"type": "text", "text": words}


FROM_CLIENT = {
    "session/new": [{"cwd": "/w", "mcpServers": [SERVER], "additionalDirectories": ["/x"]}],
    "session/load": [{"sessionId": "s", "cwd": "/w", "mcpServers": [SERVER]}],
    "session/close": [{"sessionId": "s"}],
    "session/prompt": [{"sessionId": "s", "prompt": [text_block(t)]} for t in ("hi", "/do it")],
}
FROM_AGENT = {
    "session/request_permission": [
        {"sessionId": "s", "toolCall": CALL, "options": [OPTION]},
        {
            "sessionId": "s",
            "title": "Run",
            "subject": {"type": "command", "toolCallId": "1", "command": "ls", "cwd": "/"},
            "options": [OPTION],
        },
    ],
    "elicitation/create": [
        {"sessionId": "s", "mode": "form", "message": "m", "requestedSchema": {"type": "object"}}
    ],
    "mcp/message": [
        {"connectionId": "c", "serverId": "i", "method": "tools/call", "params": {"name": "t"}}
    ],
    "fs/read_text_file": [{"sessionId": "s", "path": "/a"}],
}
UPDATES = [
    update("agent_message_chunk", messageId="m", content=text_block("a")),
    update("tool_call", **CALL),
    update("tool_call_update", **CALL),
    update("plan", entries=[{"content": "a", "priority": "high", "status": "pending"}]),
    update("subagent_update", sessionId="t", cwd="/", state={"state": "idle"}),
    update("available_commands_update", availableCommands=[{"name": "a", "description": "b"}]),
    update("state_update", state="idle", stopReason="end_turn"),
    update("current_mode_update", currentModeId="m"),
    update("config_option_update", configOptions=[{"id": "a"}]),
    update("session_info_update", title="t"),
]


def malformations(value):
    """Every variant of a value in which a member or an item is missing or of another type."""
    yield from (5, "x", None, [5], {})
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            without = copy(value)
            del without[key]
            yield without
            for other in malformations(value[key]):
                changed = copy(value)
                changed[key] = other
                yield changed


class Peer(End):
    """Answers requests, and keeps the messages of errors."""

    def request(self, call, method, params):
        super().request(call, method, params)
        self.answer({"sessionId": "s", "stopReason": "end_turn", "messageId": "m"})

    def respond(self, call, result, error):
        call.answered = True
        self.hear("answer", call.method, json.loads(bytes(error or b"null")))


@pytest.fixture
def logged(capsys):
    """Returns the log lines of warnings and errors so far."""
    log.configure("warning", as_json=True)
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "proxy",
    [
        *(Setup, Opened, Prompted, Command, Updated, Streamed, Filtered, Tools),
        *(Permission, Question, Mcp, Plain),
    ],
)
async def test_no_malformed_message_is_taken_for_a_failure_of_the_plugin(proxy, version, logged):
    plugin = proxy()
    async with hop(plugin, Peer) as on_hop:
        on_hop.agent.request = lambda call, method, params: on_hop.agent.neighbour.respond(
            call, dumps({"protocolVersion": version}), None
        )
        on_hop.client.ask("initialize", {"protocolVersion": version})
        await on_hop.settle()
        del on_hop.agent.request
        for source, table in ((on_hop.client, FROM_CLIENT), (on_hop.agent, FROM_AGENT)):
            handled = {handler.method for handler in proxy._acp_handlers}
            for method in table.keys() & handled:
                for params in [bad for good in table[method] for bad in malformations(good)]:
                    source.heard.clear()
                    source.ask(method, params)
                    await on_hop.settle()

                    [error] = [what[2] for what in source.heard if what[0] == "answer"]
                    if error is not None:
                        assert error["code"] == -32602, (params, error)
                        assert error["message"].startswith(f"Invalid params for {method}: ")
                        assert error["message"].endswith(f" (sent by {source.name})")
        on_hop.client.heard.clear()
        plugin.on_error = "pass"
        sent = [bad for good in UPDATES for bad in malformations(good)]
        for params in sent:
            on_hop.agent.send("session/update", params)
        await on_hop.settle()
        assert len([what for what in on_hop.client.heard if what[0] == "notification"]) == len(sent)

    for line in logged():
        assert line["event"].startswith("malformed message"), line
        assert line["sender"] in ("client", "agent")


class Connects(Proxy):
    @on_mcp("tools/call")
    async def call_tool(self, server, params, forward):
        return await forward()

    @on("_own/ask")
    async def ask(self, params, forward):
        return await forward()


@pytest.mark.parametrize("method", ["mcp/message", "mcp/connect", "mcp/disconnect", "_own/ask"])
async def test_what_no_schema_describes_may_be_too_deep_without_blame_of_the_plugin(method, logged):
    flat, deep = (b'{"method":"tools/call","params":%b}' % nested(n) for n in (1, MAX_DEPTH))
    async with hop(Connects(), Peer) as on_hop:
        on_hop.client.request = lambda call, method, params: on_hop.client.neighbour.respond(
            call, deep, None
        )
        for params in (deep, flat):
            on_hop.agent.neighbour.request(InFlightRequest(method, on_hop.agent), method, params)
            await on_hop.settle()

        deep_params, deep_result = [what[2] for what in on_hop.agent.heard]
    assert deep_params["code"] == -32602
    # Only requests pass with an answer that the plugin does not read.
    if method != "mcp/disconnect":
        assert deep_result["message"].startswith(f"Invalid result of {method}: nested more than")
    assert {line["event"].split()[0] for line in logged()} <= {"malformed"}


async def test_the_first_malformed_notification_is_logged_with_its_sender_and_member(logged):
    bad = update("plan", entries=[])
    bad["sessionId"] = 5
    plugin = Updated()
    async with hop(plugin, Peer) as on_hop:
        for plugin.on_error in ("fail", "pass"):
            on_hop.agent.send("session/update", bad)
            await on_hop.settle()

        assert on_hop.client.heard == [("notification", "session/update", bad)]
    [line] = logged()
    assert (line["sender"], line["method"]) == ("agent", "session/update")
    assert line["problem"] == "sessionId: expected string, got a number"
    assert "exception" not in line


class Broken(Proxy):
    @on_prompt
    async def prompted(self, session, prompt, forward):
        raise KeyError("x")


async def test_a_failure_on_a_good_message_stays_one_of_the_plugin(logged):
    async with hop(Broken(), Peer) as on_hop:
        on_hop.client.ask("session/prompt", {"sessionId": "s", "prompt": []})
        await on_hop.settle()
        assert on_hop.client.heard[0][2]["code"] == -32603
    assert [line["event"] for line in logged()] == ["handler failed"]
