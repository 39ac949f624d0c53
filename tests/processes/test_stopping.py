"""A stop takes no longer than the slowest component needs.

The `stop_timeout` of a minute exceeds the time limit of these tests.
"""

import pytest
from support.peers.process import agent, chunk, is_running, proxy

LONG = {"stop_timeout": "1m"}


@pytest.fixture
def waiting(tmp_path):
    """A plugin whose handler waits for the agent's answer."""
    (tmp_path / "waiting.py").write_text(
        "from conductor.proxy import Proxy, on\n"
        "class Waiting(Proxy):\n"
        "    @on('session/prompt')\n"
        "    async def wait(self, params: dict, forward):\n"
        "        return await forward()\n"
    )
    return {"use": f"{tmp_path}/waiting.py:Waiting", **LONG}


def test_requests_to_a_disconnected_client_do_not_delay_the_stop(run_chain, waiting):
    editor = run_chain({"run": agent(), **LONG}, {"run": proxy("p"), **LONG}, waiting)
    editor.open()
    editor.prompt("wait")
    editor.next(chunk)

    editor.process.stdin.close()
    editor.process.stdout.close()

    assert editor.wait() == 0


def test_each_component_has_its_own_stop_timeout(run_chain):
    """A component that ignores EOF and SIGTERM is killed; its neighbour has a minute."""
    stubborn = {"run": agent("--ignore-eof", "--ignore-term"), "stop_timeout": "200ms"}
    editor = run_chain(stubborn, {"run": proxy("p"), **LONG})
    editor.open()
    (process,) = (p for p in editor.components if "--ignore-term" in p.cmdline())

    editor.close_stdin()

    assert editor.wait() == 0
    assert not is_running(process)
