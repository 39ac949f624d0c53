"""What names of the registry are resolved with on this machine: its platform, and the variable."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["REGISTRY_VARIABLE", "current_platform"]

REGISTRY_VARIABLE: Final = "ACP_CONDUCTOR_REGISTRY"
"""The environment variable with the file or URL of the registry, where a chain file names none."""
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SYSTEMS: Final = {"win32": "windows"}


def current_platform() -> str:
    """This machine in the words of the registry: `linux-x86_64`."""
    machine = os.uname().machine.lower()
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{_MACHINES.get(machine, machine)}"
