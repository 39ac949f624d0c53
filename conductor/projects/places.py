"""Where chain files of projects and users are. Imports little: it is asked at every start.

A project's file is the nearest `.acp-conductor.yaml`, from a directory upwards. The search ends
before the home directory, the root directory, and directories on another file system. Files of the
user are in the platform's configuration directory: `chain.yaml`, with proxies before every chain,
and `chains/NAME.yaml`, which commands take as `NAME`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TypeAlias

__all__ = [
    "PROJECT_FILE",
    "Stamp",
    "config_directory",
    "ends_search",
    "find_project_file",
    "named_chain",
    "named_chains",
    "stamp",
    "state_directory",
    "unknown_name_help",
    "user_chain_file",
]

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
PROJECT_FILE = ".acp-conductor.yaml"
_NAME = "acp-conductor"


def find_project_file(directory: str) -> str | None:
    """The project's file for a session in this absolute directory, with symbolic links of the
    directory resolved; it need not be readable."""
    if not os.path.isabs(directory):
        return None
    directory = os.path.realpath(directory)
    try:
        device = os.stat(directory).st_dev
        while not ends_search(directory) and os.stat(directory).st_dev == device:
            path = os.path.join(directory, PROJECT_FILE)
            if os.path.lexists(path):
                return path
            directory = os.path.dirname(directory)
    except OSError:
        pass
    return None


def ends_search(directory: str) -> bool:
    """Whether a directory is the home directory or `/`, which have no project's file."""
    return directory in (os.path.realpath(os.path.expanduser("~")), os.sep)


def user_chain_file() -> str | None:
    """The user's `chain.yaml`, if it exists."""
    path = os.path.join(config_directory(), "chain.yaml")
    return path if os.path.exists(path) else None


def named_chain(path: str) -> str:
    """The path of the user's chain if `path` is the name of one and no file, else `path`."""
    if not _may_be_name(path):
        return path
    named = os.path.join(_chains_directory(), f"{path}.yaml")
    return named if os.path.isfile(named) else path


def unknown_name_help(path: str) -> str | None:
    """Where a chain of this name was looked for, and the names there; `None` if `path` is that of a
    file, or can be no name."""
    if not _may_be_name(path) or os.path.exists(path):
        return None
    text = f"there is no chain of this name in {_chains_directory()} either"
    names = named_chains()
    return f"{text}; the names there: {', '.join(names)}" if names else text


def named_chains() -> list[str]:
    """The names that `named_chain` knows."""
    try:
        files = sorted(os.listdir(_chains_directory()))
    except OSError:
        return []
    return [file.removesuffix(".yaml") for file in files if file.endswith(".yaml")]


def config_directory() -> str:
    """The user's configuration directory; it need not exist."""
    if sys.platform == "linux":  # importing platformdirs takes 3 ms
        return _xdg("XDG_CONFIG_HOME", ".config")
    from platformdirs import user_config_dir

    return user_config_dir(_NAME, appauthor=False)


def state_directory() -> str:
    """The user's state directory; it need not exist."""
    if sys.platform == "linux":
        return _xdg("XDG_STATE_HOME", ".local/state")
    from platformdirs import user_state_dir

    return user_state_dir(_NAME, appauthor=False)


def stamp(paths: Iterable[str]) -> Stamp:
    """A value that differs once one of the files has changed."""
    return tuple(map(_file_stamp, paths))


def _file_stamp(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _may_be_name(path: str) -> bool:
    return not (os.sep in path or path.endswith((".yaml", ".yml")) or os.path.isfile(path))


def _chains_directory() -> str:
    return os.path.join(config_directory(), "chains")


def _xdg(variable: str, default: str) -> str:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), default)
    return os.path.join(base, _NAME)
