"""Chain files: YAML in, a chain out, with the place of every value and diagnostics.

    bytes ─document─▶ data + places ─structure─▶ typed values ─loader─▶ ChainFile

PyYAML and cattrs are imported when a file is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from conductor.chainfile.diagnostics import Diagnostic
from conductor.chainfile.model import (
    ChainFile,
    ComponentSpec,
    InterpolatedString,
    Limits,
    RestartBudget,
    Tls,
    ValuePath,
)
from conductor.chainfile.source_location import SourceLocation

_T = TypeVar("_T")

__all__ = [
    "ChainFile",
    "ComponentSpec",
    "Diagnostic",
    "InterpolatedString",
    "Limits",
    "RestartBudget",
    "SourceLocation",
    "Tls",
    "ValuePath",
    "load",
    "structure_options",
]


def load(
    path: str | Path, *, environ: Mapping[str, str] = os.environ, allow_special_files: bool = False
) -> ChainFile:
    """Read a chain file, and the chain files that it nests.

    `environ` is what `${VAR}` refers to. Only files are read: no component is looked up or
    started. They have to be regular files. With `allow_special_files` the first one may be
    anything, a named pipe, say, which is waited for; a descriptor that is open already
    (`/dev/fd/63`) always may. Raises `ChainFileError` with every problem of every file.
    """
    from conductor.chainfile.loader import load_chain

    return load_chain(os.fspath(path), environ, allow_special_files)


def structure_options(component: ComponentSpec, cls: type[_T]) -> _T:
    """Make an instance of the attrs class `cls` out of the component's options (`with:`).

    The options are the init parameters of `cls`; their types decide what a scalar means
    (`timedelta` reads `10s`, `Path` is relative to the chain file). Raises `ChainFileError` with
    every mistake at its place, whatever the validators of `cls` say included; and `TypeError` if
    an annotation of `cls` itself cannot be understood.
    """
    from conductor.chainfile.options import structure

    instance: Any = structure(component, cls)
    return instance  # type: ignore[no-any-return]
