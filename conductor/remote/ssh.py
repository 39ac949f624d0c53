"""A program on another machine, by the system's `ssh`: what is run here for it. Pure.

The server gives the command as one string to the login shell of the user there; it is quoted for
shells that quote like POSIX's (RFC 4254 §6.5 has no other way). Values of environment variables
never get into it: `ssh` sends those that it is told the names of, if the server takes them
(`AcceptEnv`), and the command says so before it starts if one did not arrive.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

__all__ = ["ssh_argv"]

_VARIABLE_REFUSED = "the ssh server does not take the variable $n (AcceptEnv in its sshd_config)"


def ssh_argv(
    destination: str,
    command: Sequence[str],
    *,
    names: Iterable[str] = (),
    cwd: str | None = None,
    ping_timeout: float,
) -> list[str]:
    """The command to run here; `names` are the variables that it has to have in its environment."""
    names = list(names)
    every = max(1, round(ping_timeout / 3))
    options = {
        "BatchMode": "yes",  # nobody can be asked for a password: stdin is the protocol
        "ServerAliveInterval": every,
        "ServerAliveCountMax": 2,
        "ConnectTimeout": max(1, round(ping_timeout)),
    }
    argv = ["ssh", "-T"]
    for option, value in options.items():
        argv += ["-o", f"{option}={value}"]
    for name in names:
        argv += ["-o", f"SendEnv={name}"]
    return [*argv, "--", destination, _remote_command(command, names, cwd)]


def _remote_command(command: Sequence[str], names: Sequence[str], cwd: str | None) -> str:
    run = f"exec {shlex.join(command)}"
    if not names and cwd is None:
        return run
    steps = []
    if names:
        complaint = f'{{ echo "{_VARIABLE_REFUSED}" >&2; exit 78; }}'
        found = f'printenv "$n" >/dev/null || {complaint}'
        steps.append(f"for n in {shlex.join(names)}; do {found}; done")
    if cwd is not None:
        steps.append(f"cd {shlex.quote(cwd)} || exit")
    return f"exec sh -c {shlex.quote('; '.join([*steps, run]))}"
