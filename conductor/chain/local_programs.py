"""The commands of a chain that can be started before a client asks: programs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from conductor.errors import RegistryError
from conductor.transport.local_command import local_command
from conductor.transport.spawn import SpawnError

if TYPE_CHECKING:
    from conductor.chainfile.model import ChainFile
    from conductor.transport.local_command import LocalCommand

__all__ = ["local_programs"]


def local_programs(chain: ChainFile) -> Iterator[LocalCommand]:
    """The command of each component that is a program on this machine, isolated plugins included.

    One that cannot be found is left out: the launcher, or the builder, reports it.
    """
    specs = chain.flat()
    if any(spec.sandbox is not None for spec in specs):
        from conductor.transport.protection import protected

        try:
            specs = tuple(protected(specs))
        except (SpawnError, OSError):
            return
    for spec in specs:
        try:
            if spec.registry is not None:
                from conductor.registry.resolve import resolved

                spec = resolved(spec)
            if spec.use is not None and spec.isolate:
                from conductor.plugins.isolated_program import isolated_program

                spec = isolated_program(spec)
            if spec.run is not None and spec.ssh is None:
                yield local_command(spec, os.environ)
        except (SpawnError, RegistryError):
            continue
