"""Options that do not fit are told before anything starts; or beside it, when a client waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def chain(tmp_path):
    """A chain file with a wrong option, whose agent leaves its process id."""
    script = f"echo $$$$ > {tmp_path}/started; exec sleep 3600"
    path = tmp_path / "chain.yaml"
    path.write_text(f"""version: 1
proxies:
  - {{use: usage, with: {{tokens: nonsense}}}}
agent:
  run: [/bin/sh, -c, "{script}"]
""")
    return path


def run(chain, **options):
    program = [sys.executable, "-m", "conductor", "run", str(chain)]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, **options)


def test_who_has_said_nothing_is_told_and_nothing_starts(chain):
    read, write = os.pipe()
    done = run(chain, stdin=read)
    os.close(read)
    os.close(write)

    assert done.returncode == 2
    assert "expected `turn` or `session`, found `nonsense`" in done.stderr
    assert not (chain.parent / "started").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is told by the end of its stdin")
def test_who_has_asked_already_is_told_and_nothing_stays(chain):
    done = run(chain, input=json.dumps(INITIALIZE) + "\n")

    assert done.returncode == 2
    assert "expected `turn` or `session`, found `nonsense`" in done.stderr
    started = chain.parent / "started"
    if started.exists():
        alive = [p for p in psutil.process_iter() if p.pid == int(started.read_text() or 0)]
        assert psutil.wait_procs(alive, 30)[1] == []
