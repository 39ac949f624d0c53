"""The platform of this machine in the registry's terms, and the variable that names a registry."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["REGISTRY_VARIABLE", "current_platform"]

REGISTRY_VARIABLE: Final = "ACP_CONDUCTOR_REGISTRY"
"""Environment variable: file or URL of the registry, for chain files that name none."""
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS: Final = {"win32": "windows"}


def current_platform() -> str:
    """`OS-MACHINE` as in the registry: `linux-x86_64`, `darwin-aarch64`."""
    machine = os.uname().machine.lower()
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{_MACHINES.get(machine, machine)}"
