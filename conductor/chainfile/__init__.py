"""Chain files: YAML to a validated `ChainFile`, with the source location of every value.

    bytes ─document─▶ data, locations ─grammar, converter─▶ typed values ─build─▶ ChainFile

`model.py` declares the keys and the result (`ChainFile`, `ComponentSpec`), `keys.py` what is
declared of a key; `values.py` reads and checks single values; `diagnostics.py` has the report about
a file with mistakes (`Diagnostic`), `grammar.py` the conflicts of keys. `loader.py` drives the
steps, nested files included; `options.py` reads `with:` for a plugin's class.

Files besides the one on the command line, those of the user and the project (`conductor.places`):
`project_file.py` reads them if this user trusts them (`trust_store.py`), `layers.py` puts the
proxies of all files into one chain, `when.py` tells which components have a condition that does not
hold.

PyYAML is imported when a file is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from conductor.chainfile.diagnostics import Diagnostic, SourceLocation
from conductor.chainfile.model import (
    ChainFile,
    ComponentSpec,
    InterpolatedString,
    Limits,
    RestartBudget,
    Tls,
    ValuePath,
)

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

    `environ` holds the values of `${VAR}`. Only files are read: no component is looked up or
    started. The files must be regular files; with `allow_special_files` the first one may be of any
    kind, for example a named pipe, and reading it may block. An open file descriptor
    (`/dev/fd/63`) is always accepted. Raises `ChainFileError` with every problem of every file.
    """
    from conductor.chainfile.loader import load_chain

    return load_chain(os.fspath(path), environ, allow_special_files)


def structure_options(component: ComponentSpec, cls: type[_T]) -> _T:
    """Create an instance of the attrs class `cls` from the component's options (`with:`).

    The options are the init parameters of `cls`; their types decide what a scalar means
    (`timedelta` reads `10s`, `Path` is relative to the chain file). Raises `ChainFileError` with
    every mistake and its location, those found by the validators of `cls` included, and `TypeError`
    if an annotation of `cls` cannot be resolved.
    """
    from conductor.chainfile.options import structure

    instance: Any = structure(component, cls)
    return instance  # type: ignore[no-any-return]
