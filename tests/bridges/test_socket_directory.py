"""The socket directory: private under any umask and parent."""

from __future__ import annotations

import os
import socket
import stat
import tempfile

import pytest
import trio
from support.bridge_harness import mcp_client, situation

from bridges.shim import main
from bridges.shim_listener import ShimListener
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


async def test_a_session_gets_its_server_through_a_private_directory(odd, root):
    async with situation() as on:
        [entry] = await on.declare()
        [directory] = os.scandir(root)
        mode = stat.S_IMODE(os.stat(directory.path).st_mode)
        async with mcp_client(entry, mode="auto") as client:
            result = await client.call_tool("add", {"a": 1, "b": 2})
    assert mode & 0o777 == 0o700
    assert result.structured_content == {"result": 3}
    assert os.listdir(root) == []


async def test_a_directory_that_stays_open_to_others_is_the_error_of_the_session(root, monkeypatch):
    async with situation() as on:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fchmod", lambda fd, mode: os.chmod(fd, 0o750))
            with pytest.raises(
                RequestError, match=r"MCP server 'tools': cannot create the bridge.s socket.*TMPDIR"
            ):
                await on.declare()
            assert os.listdir(root) == []
        assert await on.declare()  # the next session tries again


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
        assert not offers.servers


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


@pytest.mark.parametrize("name", [b"n\xff", b"\xc3\xbc" * 40])
async def test_a_temporary_directory_that_cannot_be_told_to_the_agent_is_not_used(
    root, monkeypatch, name
):
    """Its name is not UTF-8, or has more bytes than fit a socket's address."""
    odd = os.fsdecode(os.path.join(os.fsencode(root), name))
    os.mkdir(odd)
    monkeypatch.setattr(tempfile, "tempdir", odd)
    listener = ShimListener()
    try:
        assert listener.open().startswith("unix:/tmp/acp-mcp-")
    finally:
        listener.close()
