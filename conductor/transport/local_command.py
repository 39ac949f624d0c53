"""Command line, environment and working directory of a component with `run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from conductor.chainfile.model import ComponentSpec

__all__ = ["LocalCommand", "local_command"]

LocalCommand: TypeAlias = tuple[tuple[str, ...], dict[str, str], str | None]
"""The argv, the complete environment and the working directory."""


def local_command(spec: ComponentSpec, environ: Mapping[str, str]) -> LocalCommand:
    """The command of a component, in its sandbox if it has one; `environ` is the conductor's.

    Raises `SpawnError` if the sandbox is not available: a program never starts outside the one
    that is configured for it.
    """
    assert spec.run is not None
    if spec.sandbox is None:
        return spec.run, spec.environment(environ), spec.cwd
    from conductor.transport.sandbox import sandboxed_command

    argv, env = sandboxed_command(spec, spec.sandbox, environ)
    return argv, env, None
