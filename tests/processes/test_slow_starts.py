"""A component that is slow to start, or to set up a session, is named after two seconds."""

from support.peers.process import agent, proxy

NAME = {"name": "agent"}
SERVERS = [{"name": "files", "command": "files", "args": [], "env": []}]


def slow(editor):
    """The warnings about slow components."""
    return [line.partition("] ")[2] for line in editor.log if "component slow" in line]


def test_a_component_that_does_not_answer_initialize_is_logged(run_chain):
    hanging = {"run": agent("--hang-on", "initialize"), "start_timeout": "2.2s", **NAME}
    editor = run_chain(hanging, proxy("p"))
    editor.answer(editor.request("initialize", protocolVersion=1, clientCapabilities={}))
    editor.leave()

    [warning] = slow(editor)
    assert warning.startswith("component slow to start ")
    assert "component=agent waits_for='its answer to initialize'" in warning


def test_the_agent_that_loads_a_session_is_logged_and_shown(run_chain):
    timeout = {"request_timeout": {"session/load": "2.2s"}}
    editor = run_chain({"run": agent("--hang-on", "session/load"), **timeout, **NAME}, proxy("p"))
    editor.open()

    load = editor.request("session/load", sessionId="x", cwd="/", mcpServers=SERVERS)
    update = editor.next(lambda message: message.get("method") == "session/update")
    editor.answer(load)
    editor.leave()

    text = update["params"]["update"]["content"]["text"]
    assert "waiting for agent to answer session/load; it may be starting MCP servers: files" in text
    [warning] = slow(editor)
    assert warning.startswith("component slow to set up a session ")
    assert "component=agent mcp_servers=['files'] session=x" in warning
