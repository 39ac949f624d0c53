"""The socket directory: private under any umask and parent; few tries to create it."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile

import pytest
import trio
from support.bridge_harness import mcp_client, shim, situation

from bridges import shim_listener
from bridges.shim import main
from bridges.shim_listener import SocketDirectory
from conductor.errors import RequestError


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Where temporary directories are made; a path that is not too long for a socket."""
    short = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", short)
    yield short
    os.chmod(short, 0o700)
    for name in os.listdir(short):
        os.chmod(f"{short}/{name}", 0o700)
        os.rmdir(f"{short}/{name}")
    os.rmdir(short)


@pytest.fixture(params=["setgid", "umask 0177", "umask 0", "plain"])
def odd(request, root):
    """What the mode of a new directory depends on."""
    before = os.umask(0o022)
    os.umask(before)
    if request.param == "setgid":
        os.chmod(root, 0o2770)
    elif request.param != "plain":
        os.umask(int(request.param.split()[1], 8))
    yield
    os.umask(before)


def test_the_directory_is_private(odd):
    made = SocketDirectory.make()
    mode = stat.S_IMODE(os.stat(made.directory).st_mode)
    made.remove()
    assert mode & 0o777 == 0o700


async def test_a_session_gets_its_server(odd):
    async with situation() as on:
        [entry] = await on.declare()
        async with mcp_client(entry, mode="auto") as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})
    assert result.structured_content == {"result": 3}


def test_leftovers_in_the_directory_are_removed(odd, root):
    left = SocketDirectory.make()
    os.close(left._lock)  # as when its conductor was killed
    SocketDirectory.make().remove()
    assert os.listdir(root) == []


@pytest.mark.parametrize("problem", ["locked", "mode"])
async def test_after_several_tries_the_session_gets_the_error(root, monkeypatch, problem):
    made = []
    mkdtemp = tempfile.mkdtemp

    def counted(**options):
        made.append(mkdtemp(**options))
        return made[-1]

    def locked(fd, how):
        raise BlockingIOError

    monkeypatch.setattr(tempfile, "mkdtemp", counted)
    if problem == "locked":
        monkeypatch.setattr(fcntl, "flock", locked)
    else:
        monkeypatch.setattr(os, "fchmod", lambda fd, mode: os.chmod(made[-1], 0o750))
    async with situation() as on:
        with pytest.raises(
            RequestError, match=r"MCP server 'tools': cannot create the bridge.s socket.*TMPDIR"
        ):
            await on.declare()
        await on.client.new_session("/work")
        monkeypatch.undo()
        monkeypatch.setattr(tempfile, "tempdir", root)
        assert await on.declare()  # the next session tries again

    assert len(made) == shim_listener._MAX_ATTEMPTS
    assert os.listdir(root) == []


async def test_a_root_that_cannot_be_written_is_the_error_of_the_session(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    async with situation() as on:
        with pytest.raises(RequestError, match="cannot create the bridge's socket"):
            await on.declare()


async def test_nothing_is_kept_of_a_set_up_with_a_declaration_that_is_refused():
    async with situation() as on:
        good = {"type": "acp", "name": "a", "serverId": "a"}
        with pytest.raises(RequestError, match="needs a name"):
            await on.declare(good, {"type": "acp", "name": "b"})
        offers = on.bridge._rewriter
        assert not offers.shim_listener._tokens
        assert not offers._servers


async def test_a_shim_tells_its_token_only_to_its_own_user(monkeypatch):
    """In a directory that others may write to, another user's socket may replace it."""
    listener = socket.socket(socket.AF_UNIX)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, listener:
        listener.bind(f"{directory}/s")
        listener.listen()
        environ = {"ACP_MCP_BRIDGE": f"unix:{directory}/s", "ACP_MCP_TOKEN": "secret"}
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        import posix

        monkeypatch.setattr(posix, "geteuid", lambda: 4711)
        assert await trio.to_thread.run_sync(main, environ) == 1
        stream, _ = listener.accept()
        with stream:
            assert stream.recv(100) == b""


async def test_a_shim_of_the_same_user_is_accepted():
    async with situation() as on:
        [entry] = await on.declare()
        async with shim(entry):
            await on.until(lambda: bool(on.bridge._shims.shims))


@pytest.mark.parametrize("name", [b"n\xff", b"\xc3\xbc" * 40])
def test_a_temporary_directory_that_cannot_be_told_to_the_agent_is_not_used(
    root, monkeypatch, name
):
    """Its name is not UTF-8, or has more bytes than fit a socket's address."""
    odd = os.fsdecode(os.path.join(os.fsencode(root), name))
    os.mkdir(odd)
    monkeypatch.setattr(tempfile, "tempdir", odd)
    made = SocketDirectory.make()
    try:
        assert os.path.dirname(made.directory) == "/tmp"
    finally:
        made.remove()
