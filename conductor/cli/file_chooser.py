"""The chooser for the chain of a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from conductor.chainfile.model import ChainFile
from conductor.chainfile.paths import working_directory
from conductor.errors import ChainFileError
from conductor.projects.chooser import ChainChooser, OtherFiles

__all__ = ["file_chooser", "forget_plugin_files", "is_pipe"]


def file_chooser(
    path: str,
    known: ChainFile | ChainFileError,
    load: Callable[[], ChainFile],
    others: OtherFiles | None = None,
) -> ChainChooser:
    """The chooser for the chain of a file, or for its mistakes, as just read."""
    return ChainChooser(
        known,
        None if is_pipe(path) else load,
        working_directory(),
        others=others or OtherFiles(),
        forget_plugins=forget_plugin_files,
    )


def is_pipe(path: str) -> bool:
    """Whether a path is a pipe, as in `run <(make-a-chain)`."""
    return os.path.exists(path) and not os.path.isfile(path)


def forget_plugin_files() -> None:
    """Drop imported plugin files, so that a corrected file is imported again."""
    if "conductor.plugins.file_imports" in sys.modules:
        from conductor.plugins.file_imports import forget_imported_files

        forget_imported_files()
