"""Command line of the system's `ssh` for a component on another machine. Pure.

The server passes the command as one string to the user's login shell (RFC 4254 §6.5); it is quoted
for POSIX shells. Environment values never appear in it: `ssh` sends the named variables if the
server accepts them (`AcceptEnv`), and the remote command fails with a message if one is missing.
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
    in_terminal: bool = False,
) -> list[str]:
    """The local command. `names`: variables that its environment must have; `cwd`: remote.

    `in_terminal`: the command gets a terminal of its own there, and `ssh` may ask for a password.
    """
    names = list(names)
    every = max(1, round(ping_timeout / 3))
    options = {
        "BatchMode": "no" if in_terminal else "yes",  # no prompt where stdin is the protocol
        "ServerAliveInterval": every,
        "ServerAliveCountMax": 2,
        "ConnectTimeout": max(1, round(ping_timeout)),
    }
    argv = ["ssh", "-t" if in_terminal else "-T"]
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
