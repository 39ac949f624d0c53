"""A component on "another machine": the system's `sshd` on loopback, with keys made here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from cli.test_agent_login import terminal_login
from cli.test_login_help import LOGIN_AGENT
from remote.test_error_messages import why_it_does_not_start
from support.remote_agents import reach

from conductor.errors import RequestError

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")
pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(
        SSHD is None or SSH is None, reason="needs OpenSSH: apt-get install openssh-server"
    ),
]

ECHO_AGENT = Path(__file__).parents[1] / "support" / "components" / "echo_agent.py"
AGENT = (sys.executable, "-m", "conductor.testing.agent")


def key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a host that `ssh` knows how to reach; it takes variables like SEND_THIS."""
    assert SSHD is not None
    directory = tmp_path_factory.mktemp("ssh")
    directory.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    host_key, our_key = key(directory / "host"), key(directory / "id")
    (directory / "authorized").write_text((directory / "id.pub").read_text())
    server = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": host_key,
        "AuthorizedKeysFile": directory / "authorized",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "AcceptEnv": "SEND_* A",
        "PidFile": "none",
        "PermitRootLogin": "yes",
    }
    client = {
        "HostName": "127.0.0.1",
        "Port": port,
        "IdentityFile": our_key,
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
    }
    (directory / "sshd").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
    options = "".join(f"  {name} {value}\n" for name, value in client.items())
    (directory / "config").write_text(f"Host far\n{options}")
    # OpenSSH asks the system for the home directory, not HOME: a program of that name stands before
    # it on PATH and only says which configuration to read.
    (directory / "ssh").write_text(f'#!/bin/sh\nexec {SSH} -F {directory}/config "$@"\n')
    (directory / "ssh").chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where root's sshd separates its privileges
    process = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(directory / "sshd")], stderr=subprocess.DEVNULL
    )
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{directory}:{path}"
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.skip("sshd does not run here")
                time.sleep(0.05)
        yield "far"
    finally:
        os.environ["PATH"] = path
        process.terminate()
        process.wait()


async def test_an_agent_runs_there_in_its_directory_with_variables_that_sshd_takes(host, tmp_path):
    script = 'printf "%s %s" "$PWD" "$SEND_NOTE" > ran; exec "$0" -m conductor.testing.agent'
    run = ("sh", "-c", script, sys.executable)
    environment = {"SEND_NOTE": "it's $HOME"}
    async with reach(run=run, ssh=host, cwd=str(tmp_path), env=environment) as client:
        await client.initialize()
        session = await client.new_session("/tmp")
        answer = await client.prompt(session, "say hello there")

    assert answer == {"stopReason": "end_turn"}
    assert (tmp_path / "ran").read_text() == f"{tmp_path} it's $HOME"


async def test_a_variable_that_sshd_does_not_take_is_a_failure_to_start_and_its_value_no_secret_out(
    host,
):
    error = await why_it_does_not_start(run=AGENT, ssh=host, env={"OTHER": "hidden-value"})

    assert error.data["stderr"] == [
        "the ssh server does not take the variable OTHER (AcceptEnv in its sshd_config)"
    ]
    assert "hidden-value" not in str(error.data)


async def test_a_login_failure_shows_the_stderr_of_ssh():
    error = await why_it_does_not_start(run=AGENT, ssh="no-such-host.invalid")

    assert "exited with status 255" in error.message
    assert "no-such-host.invalid" in error.data["stderr"][-1]


async def test_a_cut_connection_answers_the_prompt_and_the_session_is_loaded_over_a_new_one(host):
    run = (sys.executable, str(ECHO_AGENT), "--back", "load")
    asked = trio.Event()

    async def never(params: object) -> None:
        asked.set()
        await trio.sleep_forever()

    async with reach(run=run, ssh=host) as client:
        client.handlers["session/request_permission"] = never
        await client.initialize()
        session = await client.new_session("/tmp")
        async with trio.open_nursery() as nursery:

            async def prompt() -> None:
                with pytest.raises(RequestError, match="far") as caught:
                    await client.prompt(session, "perm")
                assert "it is restarted" in caught.value.data["next"]

            nursery.start_soon(prompt)
            await asked.wait()
            (child,) = _ssh_children()
            os.kill(child, signal.SIGKILL)
        answer = await client.prompt(session, "how")

    assert answer["stopReason"] == "end_turn"
    assert client.transcript.text(session).endswith("loaded")


def _ssh_children() -> list[int]:
    """`ssh` processes started by this one."""
    found = []
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        if Path(f"/proc/{pid}/comm").read_text().strip() == "ssh":
            found.append(int(pid))
    return found


def test_a_login_in_a_terminal_runs_there(host, tmp_path):
    agent = {"run": [*LOGIN_AGENT, "--acp", "plain"], "ssh": host, "cwd": str(tmp_path)}
    path = tmp_path / "chain.yaml"
    path.write_text(f"version: 1\nagent: {json.dumps(agent)}\n")
    shell = terminal_login(path, tmp_path)

    assert shell.exit_code() == 7
    assert f"['--acp', 'plain', '--login'] True None None {tmp_path}\n" in shell.seen
