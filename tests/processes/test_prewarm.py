"""With `prewarm`, programs start before the client asks, and end if the chain does not start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest
from support.raw_json import compact

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def chain(tmp_path):
    """A chain file with an error; its agent writes its process id to a file."""
    script = f"echo $$$$ > {tmp_path}/started; exec sleep 3600"
    path = tmp_path / "chain.yaml"
    path.write_text(f"""version: 1
proxies:
  - {{use: usage, start_timeout: nonsense}}
agent:
  run: [/bin/sh, -c, "{script}"]
""")
    return path


def run(chain, **options):
    program = [sys.executable, "-m", "conductor", "run", str(chain)]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.fast
def test_a_bad_chain_file_without_client_input_is_printed_and_nothing_starts(chain):
    done = run(chain, stdin=subprocess.DEVNULL)

    assert done.returncode == 2
    assert "found `nonsense`" in done.stderr
    assert not (chain.parent / "started").exists()


@pytest.mark.fast
def test_a_bad_chain_file_answers_a_waiting_initialize_and_nothing_starts(chain):
    done = run(chain, input=compact(INITIALIZE) + "\n")

    assert done.returncode == 2
    assert json.loads(done.stdout)["result"]["agentInfo"]["name"] == "acp-conductor"
    assert "found `nonsense`" in done.stderr
    assert not (chain.parent / "started").exists()


@pytest.fixture
def with_plugin(tmp_path):
    """Write a chain of a plugin with this source and an agent that starts a child process."""

    def make(source, options="{}"):
        (tmp_path / "plugin.py").write_text(source + CLASS)
        agent = f"{sys.executable} -m conductor.testing.agent"
        script = (
            f"echo started >> starts; sleep 3600 & echo $$! >> pids; echo $$$$ >> pids; {agent}"
        )
        path = tmp_path / "chain.yaml"
        path.write_text(f"""version: 1
prewarm: true
on_start_failure: error
proxies:
  - {{use: "./plugin.py:Plugin", with: {options}}}
agent:
  run: [/bin/sh, -c, "cd {tmp_path}; {script}"]
""")
        return path

    return make


CLASS = """
import attrs
from conductor.proxy import Proxy

@attrs.define
class Plugin(Proxy):
    pass
"""


def started_by(chain):
    """The process ids that the agent's shell has written to `pids` so far."""
    pids = chain.parent / "pids"
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


def wait_gone(pids):
    alive = [process for process in psutil.process_iter() if process.pid in pids]
    assert psutil.wait_procs(alive, 30)[1] == []


@contextmanager
def importing_its_plugin(with_plugin, tmp_path, options="{}"):
    """A conductor that imports a plugin until the block ends, and the process ids of its agent."""
    os.mkfifo(tmp_path / "gate")
    chain = with_plugin(f"open('{tmp_path}/gate').read()", options)
    conductor = subprocess.Popen(
        [sys.executable, "-m", "conductor", "run", str(chain)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert conductor.stdin is not None
    conductor.stdin.write(compact(INITIALIZE) + "\n")
    conductor.stdin.flush()
    with open(tmp_path / "gate", "w"):
        yield conductor, wait_for_two(chain)


def test_wrong_options_end_the_early_agent_and_its_children(with_plugin, tmp_path):
    with importing_its_plugin(with_plugin, tmp_path, "{nonsense: 1}") as (conductor, pids):
        pass
    stdout, _ = conductor.communicate(timeout=60)

    assert conductor.returncode == 3
    assert "unknown option `nonsense`" in json.loads(stdout)["error"]["message"]
    wait_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_during_plugin_import_ends_the_early_agent_and_its_children(
    with_plugin, tmp_path, number
):
    with importing_its_plugin(with_plugin, tmp_path) as (conductor, pids):
        conductor.send_signal(number)
        conductor.communicate(timeout=60)

    assert conductor.returncode == 128 + number
    wait_gone(pids)


def wait_for_two(chain):
    """The process ids of the agent's shell and of its child; fails after 60 s without them."""
    end = time.monotonic() + 60
    while len(pids := started_by(chain)) < 2:
        assert time.monotonic() < end, "the agent was not started before the plugin was imported"
        os.sched_yield()
    return pids


def test_an_early_agent_starts_once_although_a_plugin_changes_the_environment(with_plugin):
    chain = with_plugin("import os; os.environ['CHANGED_BY_A_PLUGIN'] = '1'")

    done = run(chain, input=compact(INITIALIZE) + "\n")

    assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1
    assert (chain.parent / "starts").read_text() == "started\n"
    wait_gone(started_by(chain))


def test_a_chain_file_from_a_pipe_is_read_once(with_plugin, tmp_path):
    """As with `run <(make-a-chain)`."""
    text = with_plugin("").read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[text])
    writer.start()
    answer = json.loads(run(pipe, input=compact(INITIALIZE) + "\n").stdout)
    writer.join()

    assert "result" in answer


def test_an_early_agent_with_inherit_env_false_sees_only_its_env(tmp_path):
    chain = tmp_path / "chain.yaml"
    agent = f"{sys.executable} -m conductor.testing.agent"
    chain.write_text(f"""version: 1
agent:
  run: [/bin/sh, -c, "echo $${{SECRET:-none}} >> {tmp_path}/seen; exec {agent}"]
  inherit_env: "${{INHERIT:-true}}"
""")
    run(
        chain,
        input=compact(INITIALIZE) + "\n",
        env={**os.environ, "SECRET": "s", "INHERIT": "false"},
    )

    assert (tmp_path / "seen").read_text() == "none\n"


def test_the_agent_of_a_nested_chain_starts_once(with_plugin, tmp_path):
    inner = with_plugin("").rename(tmp_path / "inner.yaml")
    chain = tmp_path / "chain.yaml"
    chain.write_text(f"""version: 1
proxies:
  - {{use: usage}}
agent:
  chain: {inner.name}
""")
    answer = json.loads(run(chain, input=compact(INITIALIZE) + "\n").stdout)

    assert answer["id"] == 1
    assert "result" in answer
    assert (tmp_path / "starts").read_text() == "started\n"


def test_with_prewarm_the_agent_starts_before_initialize_and_ends_with_the_client(
    with_plugin,
):
    chain = with_plugin("")
    words = [sys.executable, "-m", "conductor", "run", str(chain)]
    conductor = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids = wait_for_two(chain)
    stdout, _ = conductor.communicate(compact(INITIALIZE) + "\n", timeout=60)

    assert json.loads(stdout.splitlines()[0])["result"]["protocolVersion"] == 1
    assert (chain.parent / "starts").read_text() == "started\n"
    wait_gone(pids)


def test_with_prewarm_a_client_that_leaves_at_once_leaves_no_process(with_plugin):
    chain = with_plugin("")

    assert run(chain, input="").returncode == 0

    wait_gone(started_by(chain))
