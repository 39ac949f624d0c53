"""The machine of a remote agent fails in every way in every state, and comes back.

The machine is a `serve` process, reached by each kind of network; it is killed, stopped in order,
or suspended. All combinations run with `--long`; by default each network meets one failure.
"""

import json
import os
import socket
import threading
from itertools import product
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import pytest
from chaos.test_chaos import BUDGET, check_that_it_works_again, reach, record
from support.peers.process import PATIENCE, agent, peak

NETWORKS = ("ws", "http", "unix")
FAULTS = ("kill", "end", "still", "agent")
STATES = ("before", "idle", "prompt", "permission", "tool", "eof")


@pytest.fixture
def machine(start, tmp_path):
    """Starts the machine, where it was before; returns it, and what the chain file says of it."""
    served = {"run": agent("--back", "resume"), "name": "agent", "stop_timeout": "300ms"}
    (tmp_path / "served.yaml").write_text(json.dumps({"version": 1, "agent": served}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = []

    def start_machine(network):
        unix = f"{tmp_path}/machine.sock"
        listen = f"unix:{unix}" if network == "unix" else f"127.0.0.1:{port}"
        options = ("--listen", listen, "--drain-timeout", "1")
        server = start("--log", "error", "serve", str(tmp_path / "served.yaml"), *options)
        server.wait_log("listening on")
        running.append(server)
        where = {"unix": unix} if network == "unix" else {"connect": f"{network}://{listen}/acp"}
        times = {} if network == "unix" else {"ping_timeout": "1s"}
        return server, {**where, **times, "name": "far", "start_timeout": "2s"}

    yield start_machine
    for server in running:
        if server.process.poll() is None:
            os.kill(server.pid, SIGCONT)
            server.process.terminate()
            server.process.wait(PATIENCE)


def cases():
    for network, fault, state in product(NETWORKS, FAULTS, STATES):
        # A suspended peer of a Unix socket is not detected; an absent one is not reached.
        if not (fault == "still" and network == "unix") and not (fault == "agent" == state):
            yield network, fault, state


def is_short(network, fault, state):
    return (NETWORKS.index(network) + FAULTS.index(fault)) % 4 == STATES.index(state) - 1


@pytest.mark.parametrize(
    ("network", "fault", "state"),
    [pytest.param(*case, marks=() if is_short(*case) else pytest.mark.long) for case in cases()],
)
def test_the_machine_of_a_remote_agent_fails(run_chain, machine, network, fault, state):
    server, far = machine(network)
    editor = run_chain(far, agent("--proxy", "--name", "p"), log="error")
    asked, answered = record(editor)
    if state == "before":
        fail(server, fault)
        editor.request("initialize", protocolVersion=1, clientCapabilities={})
        first = editor.answer(1)
        if fault in ("kill", "end"):
            assert first["error"]["data"]["component"] == "far"
            machine(network)
        recover(server, fault)
        if "error" in first:
            assert "result" in editor.answer(
                editor.request("initialize", protocolVersion=1, clientCapabilities={})
            )
    else:
        request = editor.request("initialize", protocolVersion=1, clientCapabilities={})
        assert "result" in editor.answer(request)
    base = peak(editor.pid)
    new = editor.request("session/new", cwd="/", mcpServers=[])
    assert "result" in editor.answer(new)
    if state != "before":
        reach(editor, state)
        fail(server, fault)
        if fault in ("kill", "end"):
            machine(network)
        recover(server, fault)
    if state != "eof":
        check_that_it_works_again(editor)
    assert peak(editor.pid) - base < BUDGET
    editor.close_stdin()
    editor.rest()

    assert sorted(answered) == sorted(asked)  # each once, and nothing else
    assert editor.process.wait(PATIENCE) == 0


def fail(server, fault):
    match fault:
        case "kill":
            os.kill(server.pid, SIGKILL)
            server.process.wait(PATIENCE)
        case "end":
            os.kill(server.pid, SIGTERM)
            server.process.wait(PATIENCE)
        case "still":
            os.kill(server.pid, SIGSTOP)
            threading.Event().wait(2.5)  # there is no event that nothing happens
        case "agent":
            for process in server.components:
                os.kill(process.pid, SIGKILL)


def recover(server, fault):
    if fault == "still":
        os.kill(server.pid, SIGCONT)
