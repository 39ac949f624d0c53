"""What an agent answers with something else than the protocol says is never a failure of a
ready-made proxy: it passes, or the error names the agent or says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from conductor import log
from conductor.chainfile import load
from conductor.proxy import RequestError
from conductor.testing import FakeAgent, open_chain
from conductor.testing.updates import state

pytestmark = pytest.mark.slow

CHAINS = Path(__file__).parents[2] / "chains"
OTHERS = {"brief", "hello", "ignored_rule", "registry", "remote", "sandbox"}
"""Chain files that are not about one ready-made proxy."""
NAMES = sorted({each.stem for each in CHAINS.glob("*.yaml")} - OTHERS)
ANSWERS = [
    *(None, [], "x", 7, {}),
    {"sessionId": 7, "stopReason": 7, "configOptions": 7, "sessions": "x", "modes": [7]},
    {"sessions": [7], "configOptions": [7, {"id": 7}], "modes": {"availableModes": [7]}},
]
METHODS = (
    *("session/new", "session/load", "session/resume", "session/fork", "session/list"),
    *("session/set_mode", "session/set_config_option", "session/close", "session/delete"),
)
PARAMS = {
    "sessionId": "session-1",
    "cwd": "/",
    "mcpServers": [],
    "prompt": [{"type": "text", "text": "hi"}],
    "configId": "c",
    "value": "on",
    "modeId": "m",
}


async def error_of(request, *args):
    """The error of a request as a text; empty if it has a result."""
    with trio.fail_after(20):
        try:
            await request(*args)
        except RequestError as exc:
            return f"{exc} {exc.data}"
    return ""


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", NAMES)
async def test_nonsense_of_the_agent_is_not_a_failure_of_the_proxy(
    name, version, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(CHAINS)
    log.configure("warning", as_json=True)
    specs = load(f"{name}.yaml").proxies
    methods = METHODS if name in ("v1_v2", "failover") else (*METHODS, "session/prompt")
    for answer in ANSWERS:
        agent = FakeAgent()
        async with open_chain(*specs, agent) as client:
            await client.initialize(version=version)
            await client.new_session("/")
            for method in methods:
                agent.handlers[method] = lambda params, answer=answer: answer
                problem = await error_of(client.request, method, PARAMS)
                del agent.handlers[method]
                assert "Internal error" not in problem, (method, answer, problem)
            if version == 2:  # a prompt of which the chain would wait for the end
                agent.update("session-1", state("idle", "end_turn"))
    failures = [line for line in capsys.readouterr().err.splitlines() if "exception" in line]
    assert not failures, json.dumps(failures, indent=1)
