"""The exit codes: 0 clean, 1 failed, 2 wrong usage, 3 did not start, 128+n signal."""

import subprocess
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import pytest
from support.peers.process import CONDUCTOR, PATIENCE, agent, words


def run(*arguments, **options):
    """The exit status and stderr of a conductor whose client says nothing."""
    done = subprocess.run(
        [*CONDUCTOR, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **options,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.fast
def test_0_after_eof_from_the_client(start_agent):
    editor = start_agent(agent())
    editor.open()

    assert editor.leave() == 0


@pytest.mark.fast
def test_1_when_a_required_component_is_lost(start_file):
    editor = start_file({"run": agent(), "on_failure": "end_chain"})
    editor.open()
    editor.components[0].send_signal(SIGKILL)

    assert editor.wait() == 1


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["agnet"], "Did you mean 'agent'?"),
        (["agent", "unbalanced 'quote"], "cannot split"),
        (["agent", "NAME=value"], "names no program"),
        (["run", "/nonexistent/chain.yaml"], "/nonexistent/chain.yaml"),
        (["proxy", "/nonexistent/chain.yaml"], "/nonexistent/chain.yaml"),
    ],
)
def test_2_for_wrong_usage(arguments, explanation):
    status, errors = run(*arguments)

    assert status == 2
    assert explanation in errors
    assert "Traceback" not in errors


@pytest.mark.fast
def test_2_for_mistakes_in_a_chain_file_before_anything_starts(chain_file, tmp_path):
    touch = {"run": ["touch", str(tmp_path / "started")]}
    path = chain_file(touch, {"run": ["x"], "onfailure": "restart"}, version=2)

    status, errors = run("run", str(path))

    assert status == 2
    assert f"{path}:" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "started").exists()


def test_2_for_an_agent_in_a_chain_of_proxies(chain_file):
    status, errors = run("proxy", str(chain_file(agent())))

    assert (status, "must not have an `agent:`" in errors) == (2, True)


def test_3_when_the_chain_never_started(start_agent):
    editor = start_agent(["/bin/false"])
    assert "error" in editor.initialize()

    assert editor.leave() == 3


@pytest.mark.parametrize("number", [SIGTERM, SIGINT, SIGHUP])
def test_128_and_the_number_of_a_signal(start, number):
    editor = start("proxy", *words(agent()))
    refused = editor.answer(editor.request("initialize", protocolVersion=1))
    assert refused["error"]["code"] == -32600  # a proxy expects `proxy/initialize`

    editor.signal(number)

    assert editor.wait() == 128 + number
