"""Paths of the capabilities that a client can announce, in all versions of the schema.

A path is dotted, `fs.writeTextFile`; it also names the objects on the way, `fs`.
"""

from __future__ import annotations

from collections.abc import Iterator

from conductor.schema import v1, v2
from conductor.schema._hooks import ObjectRow, hooks_of

__all__ = ["client_capability_paths"]

_META = "_meta"


def client_capability_paths() -> frozenset[str]:
    """All paths but those of `_meta`, in which any are possible."""
    return frozenset(
        ".".join(path)
        for version in (v1, v2)
        for path in _paths(hooks_of(version.ClientCapabilities).objects, "ClientCapabilities", ())
    )


def _paths(
    objects: dict[str, ObjectRow], name: str, path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for _, wire_name, spec, *_ in objects[name][2]:
        if wire_name != _META:
            yield (*path, wire_name)
            if spec in objects:
                yield from _paths(objects, spec, (*path, wire_name))
