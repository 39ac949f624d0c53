"""Run the agent of `wrap` alone, as if its command had been started without `acp-conductor`.

Clients also use an agent's command for its terminal login: they run it again in a terminal, with
the arguments of the authentication method appended. People run `wrap -- agent login` by hand. No
chain is wanted then. What decides is stdin:

- a terminal: the agent runs alone;
- its first byte other than white space is `{` or `[`: JSON-RPC, so a client; the chain runs;
- anything else, or EOF: the agent runs alone, and reads these bytes itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from conductor.exit_codes import ExitCode
from conductor.transport.inherited_stdio import prefetched_stdin

__all__ = ["client_speaks", "run_unwrapped"]

_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
"""White space between messages, and the bytes of a byte order mark."""


def client_speaks() -> bool:
    """Whether stdin carries JSON-RPC. Waits for its first bytes and keeps them in
    `prefetched_stdin`."""
    if os.isatty(0):
        return False
    head = b"".join(prefetched_stdin).lstrip(_BLANK)
    while not head:
        try:
            chunk = os.read(0, 65536)
        except OSError:
            return False
        prefetched_stdin.append(chunk)
        if not chunk:
            return False
        head = chunk.lstrip(_BLANK)
    return head[:1] in b"{["


def run_unwrapped(argv: Sequence[str]) -> NoReturn:
    """Replace this process by the agent, with the same arguments, environment and descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    if head := b"".join(prefetched_stdin):
        _give_back(head)
    for name in ("SIGPIPE", "SIGXFSZ"):  # ignored by Python, and inherited
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))
    except FileNotFoundError:
        from conductor.plugins.loading import ready_made_help

        help = ready_made_help(argv[0])
        reason = "command not found" + (f"; {help}" if help else "")
        code = ExitCode.NOT_FOUND
    except (OSError, ValueError) as exc:
        reason, code = getattr(exc, "strerror", None) or str(exc), ExitCode.NOT_EXECUTABLE
    print(f"acp-conductor: cannot start {argv[0]}: {reason}", file=sys.stderr, flush=True)
    os._exit(code)


def _give_back(head: bytes) -> None:
    """Replace stdin by a pipe that delivers `head` and then what stdin delivers.

    A process copies it until one of the two is closed. It is a grandchild, so that the agent has no
    child that it did not start.
    """
    source = os.dup(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.close(read)
            _copy(head, source, write)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    os.close(source)
    os.dup2(read, 0)
    os.close(read)


def _copy(head: bytes, source: int, target: int) -> NoReturn:
    try:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(target, 0)  # POLLERR: the agent has closed its stdin
        while head:
            head = head[os.write(target, head) :]
            if any(fd == target for fd, _ in poll.poll()):
                break
            head = head or os.read(source, 65536)
    finally:
        os._exit(0)
