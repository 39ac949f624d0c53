"""The shim: a program that an agent starts as a stdio MCP server; relays bytes to the bridge.

Started as `python -I -S shim.py`, it imports only C modules and is ready in 7 ms. The environment
has the address of the bridge and the token to authenticate with; nothing is in the arguments. Each
direction has its own buffer and never waits for the other. When either side reaches EOF, buffered
bytes are delivered, then the shim exits.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping

# unix:/path, or unix:@abstract-name
_ADDRESS = "ACP_MCP_BRIDGE"
_TOKEN = "ACP_MCP_TOKEN"
_CHUNK = 65536


def main(environ: "Mapping[str, str]") -> int:
    address, token = environ.get(_ADDRESS), environ.get(_TOKEN)
    if not address or not token:
        return _fail("this program is started by an agent, for acp-conductor's MCP bridge")
    try:
        connection = _connect(address)
        if not _is_same_user(connection):
            connection.close()
            return _fail("a process of another user listens at " + address)
        connection.sendall(token.encode() + b"\n")
    except OSError as exc:
        return _fail("cannot connect to the bridge: " + str(exc))
    return _relay(connection)


def _fail(problem: str) -> int:
    sys.stderr.write("acp-conductor mcp shim: " + problem + "\n")
    return 1


def _connect(address: str) -> "socket":
    import _socket

    place = address.removeprefix("unix:")
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect("\0" + place[1:] if place.startswith("@") else place)
    return connection


def _is_same_user(connection: "socket") -> bool:
    """Whether the bridge runs as the same user: the token must not be sent to another one.

    The socket may be in a directory that others can write to (/tmp).
    """
    import _socket

    if not hasattr(_socket, "SO_PEERCRED"):
        return True
    import posix

    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == posix.geteuid()  # pid, uid, gid


def _relay(connection: "socket") -> int:
    import posix
    from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, poll

    connection.setblocking(False)
    posix.set_blocking(1, False)
    bridge = connection.fileno()
    poller = poll()
    watched: dict[int, int] = {}
    to_bridge = to_agent = b""
    agent_open = bridge_open = True
    sending = True  # until SHUT_WR
    try:
        while bridge_open or to_agent:
            if sending and not agent_open and not to_bridge:
                sending = False
                connection.shutdown(1)  # SHUT_WR: the bridge reads EOF, and closes in turn
            reading = bridge_open and not to_agent
            wanted = {1: POLLOUT if to_agent else 0}  # 0: report errors and hang-up only
            if agent_open and not to_bridge:
                wanted[0] = POLLIN
            if reading or to_bridge:
                wanted[bridge] = (POLLIN if reading else 0) | (POLLOUT if to_bridge else 0)
            for fd in watched:
                if fd not in wanted:
                    poller.unregister(fd)
            for fd in wanted:
                if wanted[fd] != watched.get(fd):
                    poller.register(fd, wanted[fd])
            watched = wanted
            for fd, events in poller.poll():
                if fd == 0:
                    to_bridge = posix.read(0, _CHUNK)
                    agent_open = bool(to_bridge)
                elif fd == 1:
                    if events & (POLLERR | POLLHUP | POLLNVAL):
                        return 0  # the reader of stdout is gone
                    to_agent = to_agent[_write_some(posix.write, 1, to_agent) :]
                else:
                    if to_bridge and events & (POLLOUT | POLLERR | POLLHUP):
                        try:
                            to_bridge = to_bridge[_write_some(connection.send, to_bridge) :]
                        except OSError:
                            to_bridge = b""  # it is gone; bytes it sent before may still arrive
                            agent_open = sending = False
                    if reading and events & (POLLIN | POLLERR | POLLHUP):
                        try:
                            to_agent = connection.recv(_CHUNK)
                            bridge_open = bool(to_agent)
                        except BlockingIOError:
                            pass
    except OSError:
        pass  # one side closed its connection
    finally:
        try:  # noqa: SIM105  (contextlib takes 3 ms to import)
            posix.set_blocking(1, True)  # other processes with this stdout expect blocking writes
        except OSError:
            pass
    return 0


def _write_some(write: "Callable[..., int]", *args: object) -> int:
    try:
        return write(*args)
    except BlockingIOError:
        return 0


def _environment() -> "Mapping[str, str]":
    """The two variables, without importing `os`."""
    import posix

    return {name: posix.environ.get(name.encode(), b"").decode() for name in (_ADDRESS, _TOKEN)}


def _exit(code: int) -> None:
    """Exit without the interpreter's shutdown, which takes 5 ms."""
    import posix

    sys.stderr.flush()
    posix._exit(code)


if __name__ == "__main__":
    _exit(main(_environment()))
