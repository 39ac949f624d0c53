"""Run the agent of a chain alone, in place of this process.

For a login (`run_agent_alone`): with its environment, working directory, sandbox or `ssh` as in the
chain. For `wrap` (`run_unwrapped`): as if its command had been started without `acp-conductor`.
Clients use an agent's command for its terminal login, too: they run it again in a terminal, with
the arguments of the authentication method appended. People run `wrap -- agent login` by hand. No
chain is wanted then. What decides is stdin:

- a terminal: the agent runs alone;
- its first byte other than white space is `{` or `[`: JSON-RPC, so a client; the chain runs;
- anything else, or EOF: the agent runs alone, and reads these bytes itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, NoReturn

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RegistryError
from conductor.exit_codes import ExitCode
from conductor.transport.inherited_stdio import prefetched_stdin
from conductor.transport.spawn import SpawnError

__all__ = ["client_speaks", "run_agent_alone", "run_unwrapped"]

_NOT_STARTED: Final = 3
_TERMINAL_VARIABLES: Final = ("TERM", "COLORTERM", "HOME", "PATH")
"""Variables that a program in a terminal needs, also with `inherit_env: false`."""


def run_agent_alone(
    chain: Sequence[ComponentSpec],
    args: Sequence[str],
    env: Mapping[str, str],
    *,
    command: Sequence[str] | None = None,
) -> NoReturn:
    """Replace this process by the agent of a chain with more arguments and variables, or by
    `command` in its place; exits with 3, with a message, if it cannot be started."""
    agent = chain[-1]
    try:
        if agent.sandbox is not None:
            from conductor.transport.protection import protected

            agent = protected(chain)[-1]
        argv, environ, cwd = _command(agent, args, env, command)
    except (SpawnError, RegistryError, OSError) as exc:
        _fail(f"the login of {agent.name} cannot start: {exc}")

    try:
        if cwd is not None:
            os.chdir(cwd)
    except OSError as exc:
        _fail(f"the login of {agent.name} cannot start in {cwd}: {exc.strerror}")
    os.environ.clear()
    os.environ.update(environ)
    run_unwrapped(argv)


def _command(
    agent: ComponentSpec,
    args: Sequence[str],
    env: Mapping[str, str],
    command: Sequence[str] | None,
) -> tuple[Sequence[str], Mapping[str, str], str | None]:
    """Argv, complete environment and working directory. Raises `SpawnError`, `RegistryError`."""
    if agent.registry is not None:
        from conductor.registry.resolve import resolved

        agent = resolved(agent)
    if agent.run is None:
        kind = "is on another machine" if agent.use is None else "is a class (`use`)"
        raise SpawnError(f"it {kind}: only a program that is started here has one")
    if env and (agent.sandbox is not None or agent.ssh is not None):
        names = ", ".join(map(repr, sorted(env)))
        raise SpawnError(
            f"the agent asks for variables ({names}), which would act on this machine, outside of"
            " its sandbox or `ssh`: set what it needs in `env:` of the agent"
        )
    terminal = {name: os.environ[name] for name in _TERMINAL_VARIABLES if name in os.environ}
    base = {} if agent.inherit_env else terminal
    run = (*(agent.run if command is None else command), *args)
    spec = msgspec.structs.replace(agent, run=run, env={**base, **agent.env, **env})
    assert spec.run is not None
    if spec.ssh is not None:
        from conductor.remote.ssh import ssh_argv

        words = ssh_argv(
            spec.ssh,
            spec.run,
            names=[*agent.env, *env],
            cwd=spec.cwd,
            ping_timeout=spec.ping_timeout,
            in_terminal=True,
        )
        return words, spec.environment(os.environ), None
    from conductor.transport.local_command import local_command

    return local_command(spec, os.environ)


def _fail(text: str) -> NoReturn:
    print(f"acp-conductor: {text}", file=sys.stderr, flush=True)
    sys.exit(_NOT_STARTED)


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
    for name in ("SIGPIPE", "SIGXFSZ"):  # ignored by Python, and inherited
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        if head := b"".join(prefetched_stdin):
            _run_fed(argv, head)
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


def _run_fed(argv: Sequence[str], head: bytes) -> NoReturn:
    """Run the agent with a stdin that delivers `head`, and then what stdin delivers."""
    agent = subprocess.Popen(list(argv), stdin=subprocess.PIPE, bufsize=0)
    assert agent.stdin is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: agent.send_signal(number))
    threading.Thread(target=_feed, args=(agent.stdin, head), daemon=True).start()
    code = agent.wait()
    os._exit(code if code >= 0 else 128 + abs(code))


def _feed(agent: IO[bytes], data: bytes) -> None:
    with suppress(OSError), agent:  # it has closed its stdin
        while data:
            data = data[agent.write(data) :] or os.read(0, 65536)
