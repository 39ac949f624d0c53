"""Command line, environment and working directory of a component with `run`, and of an isolated
plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from conductor.chainfile.model import ComponentSpec
from conductor.files import outside_environment

__all__ = ["LEAK_HELP", "LocalCommand", "isolated_program", "leaked_variables", "local_command"]

_LOADERS: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
_PACKAGES: Final = ("/snap/", "/var/lib/snapd/", "/tmp/.mount_")
"""Where Snap packages and AppImages are mounted."""
LEAK_HELP: Final = (
    "for one component: `env: {{{name}: null}}`; for all: let the editor start "
    "`env -u {name} acp-conductor …`"
)

LocalCommand: TypeAlias = tuple[tuple[str, ...], dict[str, str], str | None]
"""The argv, the complete environment and the working directory."""


def local_command(spec: ComponentSpec, environ: Mapping[str, str]) -> LocalCommand:
    """The command of a component, in its sandbox if it has one; `environ` is the conductor's.

    Raises `SpawnError` if the sandbox is not available: a program never starts outside the one
    that is configured for it.
    """
    assert spec.run is not None
    if spec.sandbox is None:
        return spec.run, outside_environment(spec.environment(environ)), spec.cwd
    from conductor.transport.sandbox import sandboxed_command

    argv, env = sandboxed_command(spec, spec.sandbox, environ)
    return argv, env, None


def leaked_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the editor's package (Flatpak, Snap, AppImage) gives its own libraries or
    modules to every program that the editor starts; others may not run with them."""
    roots = [*_PACKAGES, *(["/app/"] if "FLATPAK_ID" in environ else [])]
    roots += [environ["APPDIR"]] if environ.get("APPDIR") else []
    return {
        name: value
        for name in _LOADERS
        if (value := environ.get(name, ""))
        and any(part.startswith(tuple(roots)) for part in value.replace(" ", ":").split(":"))
    }


def isolated_program(spec: ComponentSpec) -> ComponentSpec:
    """The component with the command that runs its plugin (`isolate: true`)."""
    assert spec.use is not None
    env = dict(spec.env)
    if not spec.inherit_env:
        env.setdefault("PATH", os.environ.get("PATH", os.defpath))
    # -P: modules are not imported from the working directory, which may be a user's project.
    run = (sys.executable, "-P", "-m", "conductor.standalone", spec.use)
    return msgspec.structs.replace(spec, run=run, env=env)
