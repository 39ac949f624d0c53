"""Every kind of stdin and stdout: the conversation is the same, without foreign bytes."""

import fcntl
import json
import os
import pty
import re
import socket
import subprocess
import termios
import tty

import pytest
from support.log_lines import without_slow_starts
from support.peers.process import COMPONENTS, agent, chunk, conversation, encoded, probe, proxy

TEXT = b"".join(map(encoded, conversation("echo hello")))


def check(lines):
    messages = [json.loads(line) for line in lines]
    assert [message.get("id") for message in messages] == [1, 2, None, 3]
    assert all("error" not in message for message in messages)
    assert chunk(messages[2]) == "p>[p]hello"


def without_lifecycle(lines):
    """Log lines other than those of starts, slow ones too, and ends."""
    events = re.compile(r"\[info +\] (component|chain) (started|initialized|ended) ")
    return [line for line in without_slow_starts(lines) if not events.search(line)]


def test_plain_files(start_agent, tmp_path):
    (tmp_path / "in").write_bytes(TEXT)
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as stdout:
        editor = start_agent(proxy("p"), agent(), stdin=stdin, stdout=stdout)
        assert editor.wait() == 0

    check((tmp_path / "out").read_text().splitlines())


def test_one_plain_file_for_stdout_and_stderr(start_agent, tmp_path):
    (tmp_path / "in").write_bytes(TEXT)
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as both:
        options = {"stdin": stdin, "stdout": both, "stderr": both}
        editor = start_agent(proxy("p"), agent("--stderr-bytes", 3000), **options)
        assert editor.wait() == 0

    lines = (tmp_path / "out").read_text().splitlines()
    check(line for line in lines if line.startswith("{"))
    assert sum("----" in line for line in lines) == 3


def test_an_answer_to_dev_null(start_agent):
    editor = start_agent(agent(), stdout=subprocess.DEVNULL)
    editor.write(TEXT)

    assert editor.leave() == 0
    assert without_lifecycle(editor.log) == []


def test_sockets_as_node_gives_them(start_agent):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        editor = start_agent(proxy("p"), agent(), stdin=theirs, stdout=theirs)
        theirs.close()
        ours.sendall(TEXT)
        ours.shutdown(socket.SHUT_WR)

        with ours.makefile() as lines:
            check(lines)
        assert editor.wait() == 0


def test_a_socket_that_the_client_closes(start_agent):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        editor = start_agent(proxy("p"), agent(), stdin=theirs, stdout=theirs)
        theirs.close()
        ours.sendall(TEXT)
        assert ours.recv(10) == b'{"jsonrpc"'
        ours.close()

        assert editor.wait() == 0


@pytest.mark.fast
def test_a_terminal(start_agent):
    """Log lines and messages share it; O_NONBLOCK, which they would share, is never set."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs, termios.TCSANOW)
    with open(ours, "rb", buffering=0) as screen:
        options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
        editor = start_agent(proxy("p"), agent("--stderr-bytes", 3000), **options)
        os.write(ours, TEXT)
        seen = b""
        while b"end_turn" not in seen:
            seen += screen.read(65536)
        assert fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK == 0
        os.close(theirs)
        editor.process.terminate()
        assert editor.wait() == 143

    lines = seen.decode().splitlines()
    check(line for line in lines if line.startswith("{"))


def test_components_do_not_have_the_terminal_that_the_conductor_was_started_from(start_agent):
    """An agent that reads `/dev/tty`, as `git` and `ssh` do for a password, gets an error; in a
    background process group of the terminal it would be stopped for ever."""
    ours, theirs = pty.openpty()

    def take_terminal():
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    editor = start_agent(probe(), start_new_session=True, preexec_fn=take_terminal)
    os.close(theirs)
    editor.open()

    assert editor.ask("eval open('/dev/tty').readline()") == "OSError"

    prompt = editor.prompt("wait")
    editor.next(chunk)
    os.write(ours, b"\x03")
    assert editor.answer(prompt)["result"] == {"stopReason": "cancelled"}
    assert editor.wait() == 130
    os.close(ours)


def test_a_terminal_that_hangs_up(start_agent):
    ours, theirs = pty.openpty()
    tty.setraw(theirs, termios.TCSANOW)
    editor = start_agent(agent(), stdin=theirs, stdout=theirs, start_new_session=True)
    os.close(theirs)
    os.write(ours, TEXT)
    assert os.read(ours, 1) == b"{"

    os.close(ours)

    assert editor.wait() == 0


def test_one_pipe_for_stdout_and_stderr(start_agent):
    """`2>&1`: no message and no line of log is torn, however slowly it is read."""
    noisy = agent("--stderr-bytes", 60_000)
    editor = start_agent(proxy("p"), noisy, stderr=subprocess.STDOUT)
    editor.write(TEXT)
    editor.close_stdin()

    with editor.process.stdout as stdout:
        lines = stdout.read().decode().splitlines()

    check(line for line in lines if line.startswith("{"))
    logged = without_lifecycle(line for line in lines if not line.startswith("{"))
    assert len(logged) == 60
    assert all("stderr" in line and line.endswith("-" * 999) for line in logged)
    assert editor.wait() == 0


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]])
def test_descriptors_that_are_closed(start_agent, closed):
    """None of them is given to something else: a log line in the protocol, or the opposite."""

    def close():
        for number in closed:
            os.close(number)

    editor = start_agent(proxy("p"), agent("--stderr-bytes", 3000), preexec_fn=close)
    if 0 not in closed:
        editor.write(TEXT)
        editor.close_stdin()
    output = [] if 1 in closed else list(editor.process.stdout)

    if closed == [2]:
        check(output)
    else:
        assert output == []
    assert editor.wait() == 0
    assert all("stderr" in line for line in without_lifecycle(editor.log))


def test_prints_of_a_plugin_go_to_stderr(start_file):
    chatty = {"use": f"{COMPONENTS}/plugins.py:Chatty"}
    editor = start_file(agent(), chatty, proxy("p"))
    editor.open()

    assert editor.ask("echo hello") == "p>[p]hello"

    assert editor.leave() == 0
    printed = ["printed", "flushed", "written", "raw", "from a child"]
    assert sorted(line for line in editor.log if line in printed) == sorted(printed)


@pytest.mark.parametrize(("kind", "ending"), [("pipe", "terminate"), ("socket", "leave")])
def test_o_nonblock_is_as_it_was(start_agent, kind, ending):
    """The flag belongs to the open file, which the parent process shares."""
    if kind == "pipe":
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    else:
        (left, right), (above, below) = socket.socketpair(), socket.socketpair()
        their_in, our_out, our_in, their_out = (s.detach() for s in (left, right, above, below))
    try:
        editor = start_agent(agent(), stdin=their_in, stdout=their_out)
        os.write(our_out, TEXT)
        assert os.read(our_in, 1) == b"{"
        assert not os.get_blocking(their_in)
        if ending == "leave":
            os.close(our_out)
            our_out = -1
        else:
            editor.process.terminate()
        assert editor.wait() == (0 if ending == "leave" else 143)

        assert os.get_blocking(their_in)
        assert os.get_blocking(their_out)
    finally:
        for number in (their_in, our_out, our_in, their_out):
            if number >= 0:
                os.close(number)


def test_components_have_pipes_that_block(start_agent):
    """Most programs do not expect EAGAIN."""
    editor = start_agent(probe())
    editor.open()

    assert editor.ask("blocking") == "True True True"
    assert editor.leave() == 0


@pytest.mark.fast
def test_components_inherit_no_descriptor(start_agent):
    editor = start_agent(proxy("p"), probe())
    editor.open()

    assert editor.ask("descriptors") == "p>[p]0 1 2"
    assert editor.leave() == 0


def test_a_full_disk_ends_the_conductor(start_agent):
    with open("/dev/full", "wb") as full:
        editor = start_agent(agent(), stdout=full)
        editor.write(TEXT)
        editor.wait()

    assert not any("Traceback" in line for line in editor.log)
