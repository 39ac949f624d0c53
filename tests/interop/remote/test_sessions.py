"""Clients on the SDKs with several sessions at once, one of which another connection loads."""

from __future__ import annotations

import json
import subprocess
import sys

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


@pytest.fixture
def client(request, peer):
    if request.param == "ts":
        return peer("ts_sessions")
    return [sys.executable, str(HERE / "py_sessions.py")]


@pytest.mark.parametrize(("client", "scheme"), [("py", "http"), ("ts", "ws")], indirect=["client"])
def test_sessions_go_on_at_once_and_are_loaded_later(tmp_path, client, scheme):
    agent = {"use": f"{HERE / 'lasting_agent.py'}:LastingAgent"}
    with served(tmp_path, agent) as address:
        url = f"{scheme}://{address}/acp"
        result = subprocess.run([*client, url], capture_output=True, text=True, timeout=PATIENCE)

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == EXPECTED
