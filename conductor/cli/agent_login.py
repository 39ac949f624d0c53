"""Run the agent of a chain alone, in the terminal of this process, for its login.

The agent replaces this process, with its environment, working directory, sandbox or `ssh` as in the
chain.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RegistryError
from conductor.transport.spawn import SpawnError

__all__ = ["run_agent_alone"]

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
    from conductor.cli.unwrapped_agent import run_unwrapped

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
