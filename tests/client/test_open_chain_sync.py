"""`conductor.open_chain_sync`, in a program without an event loop."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import conductor
from conductor.errors import ChainFileError, ConnectionClosed, StartError
from conductor.schema import v1


def test_prompts_and_updates_are_those_of_open_chain(chain):
    with conductor.open_chain_sync(chain) as client:
        session = client.new_session()
        assert session.prompt("say one") == conductor.TurnResult("end_turn", "one")
        with session.turn("think one\nsay two") as turn:
            assert [type(each) for each in turn] == [v1.AgentThoughtChunk, v1.AgentMessageChunk]
        assert turn.result.text == "two"
        assert client.session(session.id).prompt("say three").text == "three"


def test_permission_is_asked_and_errors_are_raised(chain):
    def permission(question: v1.RequestPermissionRequest) -> str:
        if question.tool_call.title == "Delete?":
            raise ValueError("never")
        return "allow"

    with conductor.open_chain_sync(chain, permission=permission) as client:
        session = client.new_session()
        assert session.prompt("ask Write?").text == "Write?: allow\n"
        with pytest.raises(ValueError, match="never"):
            session.prompt("ask Delete?")


def test_a_turn_that_is_left_is_cancelled(chain):
    with conductor.open_chain_sync(chain) as client:
        session = client.new_session()
        with session.turn("say now\nwait") as turn:
            next(turn)
        assert turn.result.stop_reason == "cancelled"


def test_a_chain_that_cannot_start_is_an_exception(chain):
    chain.write_text("version: 1\nagent:\n  run: [no-such-program]\n")
    with pytest.raises(StartError, match="no-such-program"), conductor.open_chain_sync(chain):
        pass
    chain.write_text("version: 1\nagent: {}\n")
    with pytest.raises(ChainFileError), conductor.open_chain_sync(chain):
        pass


def test_requests_after_the_block_are_refused(chain):
    with conductor.open_chain_sync(chain) as client:
        session = client.new_session()
    with pytest.raises(ConnectionClosed, match="the chain has ended"):
        session.prompt("say late")


PROGRAM = """
import sys, threading, conductor
try:
    with conductor.open_chain_sync(sys.argv[1]) as client:
        with client.new_session().turn("say now\\nwait") as turn:
            next(turn)
            print("waiting", flush=True)
            next(turn)
except KeyboardInterrupt:
    print(turn.result.stop_reason, len(threading.enumerate()))
"""


def test_ctrl_c_cancels_the_turn_and_ends_the_thread(chain):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, chain], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        assert program.stdout.read() == "cancelled 1\n"
