"""Where chain files of projects and users are. Imports little: it is asked at every start.

A project's file is the nearest trusted `.acp-conductor.yaml`, from a directory upwards; one that is
not trusted has no effect, and hides none. The search ends before the home directory, the root
directory, and directories on another file system. Files of the user are in the platform's
configuration directory: `chain.yaml`, with proxies before every chain, and `chains/NAME.yaml`,
which commands take as `NAME`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from conductor.directories import same_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "PROJECT_FILE",
    "VIEW_PREFIX",
    "Stamp",
    "config_directory",
    "data_directory",
    "ends_search",
    "find_project_file",
    "name_of_chain",
    "named_chain",
    "named_chains",
    "runtime_directory",
    "stamp",
    "state_directory",
    "trust_directory",
    "trust_entry",
    "unknown_name_help",
    "user_chain_file",
]

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
PROJECT_FILE = ".acp-conductor.yaml"
VIEW_PREFIX = "acp-conductor-view-"
"""Of the temporary directories for `--view`."""
_NAME = "acp-conductor"


def find_project_file(directory: str, *, trusted_first: bool = True) -> str | None:
    """The project's file for a session in this absolute directory, with symbolic links of the
    directory resolved: the nearest that the user trusts, also if it is gone, else the nearest. It
    need not be readable."""
    if not os.path.isabs(directory):
        return None
    has_trust = trusted_first and os.path.isdir(trust_directory())
    nearest = None
    try:
        directory = os.path.realpath(directory)
        device = os.stat(directory).st_dev
        while not ends_search(directory) and os.stat(directory).st_dev == device:
            path = os.path.join(directory, PROJECT_FILE)
            if has_trust and os.path.lexists(trust_entry(path)):
                return path
            if nearest is None and os.path.lexists(path):
                nearest = path
                if not has_trust:
                    break
            directory = os.path.dirname(directory)
    except (OSError, ValueError):  # a null character
        pass
    return nearest


def ends_search(directory: str) -> bool:
    """Whether a directory is the home directory or `/`, which have no project's file."""
    return any(same_directory(directory, end) for end in (os.path.expanduser("~"), os.sep))


def user_chain_file() -> str | None:
    """The user's `chain.yaml`, if it exists."""
    path = os.path.join(config_directory(), "chain.yaml")
    return path if os.path.exists(path) else None


def named_chain(word: str) -> str:
    """The path of the user's chain that a bare word names, which need not exist; else the word, a
    path. A file of the working directory never takes the place of a name: it may be a clone's."""
    is_path = os.sep in word or word.endswith((".yaml", ".yml")) or word in (".", "..")
    return word if is_path else os.path.join(_chains_directory(), f"{word}.yaml")


def name_of_chain(path: str) -> str | None:
    """The name of the user's chain that has this path; `None` if none has it."""
    directory, file = os.path.split(path)
    is_named = file.endswith(".yaml") and same_directory(directory, _chains_directory())
    return file.removesuffix(".yaml") if is_named else None


def unknown_name_help(name: str) -> str:
    """Help for an unknown name: a file of the working directory that may be meant, and the
    names of the user's chains."""
    found = []
    if os.path.isfile(name):
        found.append(f"the file of this directory is written `./{name}`")
    if names := named_chains():
        found.append(f"the names there: {', '.join(names)}")
    return "; ".join(found) or "a file of this directory is written `./NAME`, or ends in `.yaml`"


def named_chains() -> list[str]:
    """The names that `named_chain` knows."""
    try:
        files = sorted(os.listdir(_chains_directory()))
    except OSError:
        return []
    return [file.removesuffix(".yaml") for file in files if file.endswith(".yaml")]


def config_directory() -> str:
    """The user's configuration directory; it need not exist."""
    from platformdirs import user_config_dir

    return user_config_dir(_NAME, appauthor=False)


def state_directory() -> str:
    """The user's state directory; it need not exist."""
    from platformdirs import user_state_dir

    return user_state_dir(_NAME, appauthor=False)


def data_directory() -> str:
    """The user's data directory; it need not exist."""
    from platformdirs import user_data_dir

    return user_data_dir(_NAME, appauthor=False)


def runtime_directory() -> Path:
    """The directory for sockets; it need not exist. Raises `OSError` if another user has made the
    one in `/tmp`, which is used without `XDG_RUNTIME_DIR` and `/run/user`."""
    import warnings

    from platformdirs import user_runtime_path

    with warnings.catch_warnings():  # of a directory in the environment that others can read
        warnings.simplefilter("ignore")
        return user_runtime_path(_NAME, appauthor=False)


def trust_directory() -> str:
    """The directory of the entries for trusted files; it need not exist."""
    return os.path.join(state_directory(), "trust")


def trust_entry(path: str) -> str:
    """The entry for a project's file."""
    import hashlib

    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    return os.path.join(trust_directory(), f"{name}.json")


def stamp(paths: Iterable[str]) -> Stamp:
    """A value that differs once one of the files has changed."""
    return tuple(map(_file_stamp, paths))


def _file_stamp(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _chains_directory() -> str:
    return os.path.join(config_directory(), "chains")
