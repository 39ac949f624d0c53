"""Autobahn's test suite against the WebSocket client and server.

It is a program for Python 2.7, and named by `ACP_WSTEST`; without it these tests are skipped:

    python2.7 -m pip install --user autobahntestsuite
    ACP_WSTEST="python2.7 $HOME/.local/bin/wstest" pytest tests/interop/remote/test_autobahn.py

Its cases with binary messages wait for an echo that ACP does not give ("Binary frames are ignored",
RFD), and those of compression for an extension that is not offered.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from .programs import HERE, PATIENCE, ROOT, program

WSTEST = os.environ.get("ACP_WSTEST")
pytestmark = pytest.mark.skipif(not WSTEST, reason="no Autobahn: ACP_WSTEST is not set")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
EXCLUDED = ["1.2.*", "9.2.*", "9.4.*", "9.6.*", "9.8.*", "12.*", "13.*"]
LENIENT = {"3.2", "3.3", "3.4", "5.15", *(f"4.{a}.{b}" for a in (1, 2) for b in (3, 4, 5))}
"""A message is right before another is wrong; the end of it all overtakes its echo, or does not."""


@pytest.fixture
def environment(tmp_path):
    """Environment of wstest, without this project's packages."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def spec(directory: Path, **more: object) -> str:
    cases = {"outdir": str(directory), "cases": ["*"], "exclude-cases": EXCLUDED}
    path = directory / "spec.json"
    path.write_text(json.dumps({**cases, "exclude-agent-cases": {}, **more}))
    return str(path)


def unusual(directory: Path) -> dict[str, str]:
    """The verdicts on cases that are neither simply passed nor known to depend on timing."""
    ((_, cases),) = json.loads((directory / "index.json").read_text()).items()
    assert len(cases) > 260
    found = {}
    for number, case in cases.items():
        fine = {"OK", "INFORMATIONAL", *(["NON-STRICT"] if number in LENIENT else [])}
        if verdict := {case["behavior"], case["behaviorClose"]} - fine:
            found[number] = " ".join(verdict)
    return found


def test_the_server_passes(tmp_path, environment):
    with program(sys.executable, str(HERE / "autobahn_echo.py"), env=ENVIRONMENT) as url:
        servers = [{"agent": "ours", "url": url, "options": {"version": 18}}]
        command = [*shlex.split(WSTEST), "-m", "fuzzingclient"]
        command += ["-s", spec(tmp_path, servers=servers)]
        subprocess.run(
            command, env=environment, capture_output=True, timeout=10 * PATIENCE, check=True
        )

    assert unusual(tmp_path) == {}


def test_the_client_passes(tmp_path, environment):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"ws://127.0.0.1:{free.getsockname()[1]}"
    command = [*shlex.split(WSTEST), "-m", "fuzzingserver", "-u", "0"]
    command += ["-s", spec(tmp_path, url=url)]
    with program(*command, until="Fuzzing Server", env=environment):
        ours = [sys.executable, str(HERE / "autobahn_echo.py"), url]
        subprocess.run(ours, env=ENVIRONMENT, timeout=10 * PATIENCE, check=True)

    assert unusual(tmp_path) == {}
