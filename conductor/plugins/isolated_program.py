"""The program of an isolated plugin (`isolate: true`): its command and environment.

Separate from `isolation`, because the program starts before the proxy API is imported.
"""

from __future__ import annotations

import os
import sys

import msgspec

from conductor.chainfile.model import ComponentSpec

__all__ = ["isolated_program"]


def isolated_program(spec: ComponentSpec) -> ComponentSpec:
    """The component with the command that runs its plugin."""
    assert spec.use is not None
    env = dict(spec.env)
    if not spec.inherit_env:
        env.setdefault("PATH", os.environ.get("PATH", os.defpath))
    # -P: modules are not imported from the working directory, which may be a user's project.
    run = (sys.executable, "-P", "-m", "conductor.standalone", spec.use)
    return msgspec.structs.replace(spec, run=run, env=env)
