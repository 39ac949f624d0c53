"""A client on the TypeScript SDK with several sessions at once; another connection loads one."""

from __future__ import annotations

import json
import subprocess

import pytest

from .programs import HERE, PATIENCE, served

EXPECTED = {
    "told": {
        "first": ["agent: Alpha: allow\n", "agent: waiting"],
        "second": ["agent: Beta: reject\n", *["agent: 0123"] * 3],
    },
    "stops": {"first": ["end_turn", "cancelled"], "second": ["end_turn", "end_turn"]},
    "loaded": [
        "user: ask Beta",
        "agent: Beta: reject\n",
        "user: stream 3 4",  # the test agent keeps no chunks of a stream
        "agent: once more",
    ],
}


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_sessions_go_on_at_once_and_are_loaded_later(tmp_path, peer, scheme):
    agent = {"use": f"{HERE / 'lasting_agent.py'}:LastingAgent"}
    with served(tmp_path, agent) as address:
        command = peer("ts_sessions", f"{scheme}://{address}/acp")
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == EXPECTED
