"""What is started for a component with `run` on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from conductor.chainfile.model import ComponentSpec

__all__ = ["LocalCommand", "local_command"]

LocalCommand: TypeAlias = tuple[tuple[str, ...], dict[str, str], str | None]
"""The argv, the complete environment and the working directory."""


def local_command(spec: ComponentSpec, environ: Mapping[str, str]) -> LocalCommand:
    """The command of a component, in its sandbox if it has one; `environ` is the conductor's.

    Raises `SpawnError` if there can be no sandbox: a program never starts without the one that it
    shall have.
    """
    assert spec.run is not None
    if spec.sandbox is None:
        return spec.run, spec.environment(environ), spec.cwd
    from conductor.transport.sandbox import sandboxed_command

    argv, env = sandboxed_command(spec, spec.sandbox, environ)
    return argv, env, None
