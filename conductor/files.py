"""Opening of files at paths that a configuration, a project or an agent decides.

What may be at the end of a path depends on who can put something there:

- A file that is written, or that keeps a state, an agent can replace: `open_own` and `open_output`
  follow no link in the last part, and open only a regular file of this user.
- A file that is read for a project or an agent: `open_inside` follows links as long as they stay in
  the allowed directories (`AGENTS.md -> CLAUDE.md`). Also if one is exchanged meanwhile: the path
  is resolved first, then opened part by part without following links.
- A file that the user names in a file of their own: `open_regular` follows all links (stow, Nix);
  `open_named` also tells whether it lies where an agent may have replaced it.
- A file that the user types: `open_as_given` opens pipes and devices, too (`<(…)`). It may wait, so
  it is for programs without an event loop, and for threads.

All but the last never wait: a named pipe, a device, a socket or a directory is an error at once.
Programs that run outside of sandboxes are looked for in the `safe_path` first.
Errors are `OSError`; its `strerror` says what is wrong. Directories above the last part are
followed as they are, but for `open_inside` and `open_parent`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Literal

__all__ = [
    "FilePath",
    "check_found",
    "is_below",
    "lock_directory",
    "lock_file",
    "locked",
    "note_sandboxes",
    "open_as_given",
    "open_inside",
    "open_named",
    "open_output",
    "open_own",
    "open_parent",
    "open_regular",
    "outside_environment",
    "read_named",
    "read_own",
    "read_regular",
    "replacing",
    "safe_path",
    "write_own",
]

FilePath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_AT_ONCE: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY: Final = (
    os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
)
_OF_THE_SYSTEM: Final = ("/dev", "/dev/fd", "/proc/self/fd")
"""Directories in which no agent can put a file; in `/dev/shm` every process can."""
_KINDS: Final = {
    stat.S_IFDIR: (errno.EISDIR, "a directory"),
    stat.S_IFIFO: (errno.EINVAL, "a named pipe"),
    stat.S_IFLNK: (errno.ELOOP, "a symbolic link"),
    stat.S_IFSOCK: (errno.EINVAL, "a socket"),
}
_MAX_BYTES: Final = 64 << 20
_sandboxes: Final[set[tuple[Sequence[str], Sequence[str]]]] = set()
_INTERVAL: Final = 0.002
"""Seconds between two attempts to lock a file."""


def is_below(path: str, directory: str) -> bool:
    """Whether a normalized path is this directory, or in it, as text."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def note_sandboxes(writable: Sequence[str], protected: Sequence[str]) -> None:
    """Programs in a sandbox can write below these real paths, but for the protected ones."""
    _sandboxes.add((tuple(writable), tuple(protected)))


def safe_path(path: str) -> str:
    """The directories of a PATH in which no program in a sandbox can put another one; all of them
    while there is none."""
    if not _sandboxes:
        return path
    return os.pathsep.join(each for each in path.split(os.pathsep) if _is_safe(each))


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that runs outside of sandboxes: with the `safe_path` first."""
    path = environ.get("PATH", os.defpath)
    safe = safe_path(path)
    if safe == path:
        return dict(environ)
    return {**environ, "PATH": os.pathsep.join(filter(None, (safe, path)))}


def open_regular(
    path: FilePath, flags: int = os.O_RDONLY, mode: int = 0o666, *, dir_fd: int | None = None
) -> int:
    """Open a regular file; returns the descriptor. Links are followed, without `O_NOFOLLOW`."""
    follows = not flags & os.O_NOFOLLOW
    try:  # without opening, which may move a device, or end the wait of who writes a pipe
        _check_regular(path, os.stat(path, dir_fd=dir_fd, follow_symlinks=follows))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    except ValueError:  # a null character, or a lone surrogate
        raise _error(errno.EINVAL, "it is not a path", path) from None
    descriptor = os.open(path, flags | _AT_ONCE, mode, dir_fd=dir_fd)
    with _closed_on_error(descriptor):
        _check_regular(path, os.fstat(descriptor))
    return descriptor


def check_found(path: FilePath) -> None:
    """Check a file that was found, not named: raises `OSError` if another user has put it into a
    directory in which every user can write, such as `/tmp`."""
    is_shared = os.stat(os.path.dirname(path) or ".").st_mode & stat.S_IWOTH
    if is_shared and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise _error(errno.EPERM, "it belongs to another user", path)


def read_regular(path: FilePath, limit: int = _MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes. Links are followed."""
    return _read(open_regular(path), path, limit)


def open_own(path: FilePath, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> int:
    """Open a regular file of this user, to read also one of root; returns the descriptor.

    A link in the last part is not followed. A file with several names (hard links) is not opened to
    write: another name may be that of any file of the user.
    """
    descriptor = open_regular(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
    with _closed_on_error(descriptor):
        found = os.fstat(descriptor)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if found.st_uid != os.geteuid() and (writes or found.st_uid != 0):
            raise _error(errno.EPERM, "it belongs to another user", path)
        if writes and found.st_nlink > 1:
            raise _error(errno.EMLINK, "it has other names (hard links)", path)
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    return descriptor


def read_own(path: FilePath, limit: int = _MAX_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes, opened by `open_own`."""
    return _read(open_own(path, os.O_RDONLY), path, limit)


def write_own(path: FilePath, data: bytes) -> None:
    """Write a whole file, opened by `open_own`."""
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


def open_output(path: FilePath) -> int:
    """Open a file that a chain file names, to append lines: by `open_own`, with mode 0600 if it is
    new. `/dev/stderr` and its like are opened as they are; writing to them does not wait."""
    flags = os.O_WRONLY | os.O_APPEND
    if os.path.dirname(os.fsdecode(path)) in _OF_THE_SYSTEM:
        return os.open(path, flags | _AT_ONCE)
    return open_own(path, flags | os.O_CREAT)


def open_inside(
    path: str, directories: Sequence[str], flags: int = os.O_RDONLY, mode: int = 0o666
) -> int:
    """Open a regular file in one of the directories; returns the descriptor. With `O_CREAT`,
    directories on the way are created, too.

    A path that leads out of them, with links followed, is an error with `EXDEV`.
    """
    real = _real(path)
    root = _root(real, map(_real, directories))
    if root is None:
        raise _error(errno.EXDEV, "it is a link that leads out of the project", path)
    create = bool(flags & os.O_CREAT)
    with open_parent(root, os.path.relpath(real, root), create=create) as (parent, name):
        return open_regular(name, flags | os.O_NOFOLLOW, mode, dir_fd=parent)


def open_named(path: str, directories: Sequence[str]) -> int:
    """Open a file that a chain file names, to read it for an agent.

    In the directories of the agent, by `open_inside`: the agent can replace it by a link. Elsewhere
    by `open_regular`.
    """
    path = os.path.abspath(path)
    places = path, os.path.join(_real(os.path.dirname(path)), os.path.basename(path))
    roots = [*map(os.path.abspath, directories), *map(_real, directories)]
    if any(_root(place, roots) is not None for place in places):
        return open_inside(path, directories)
    return open_regular(path)


def read_named(path: str, directories: Sequence[str], limit: int) -> bytes:
    """The content of a file of at most `limit` bytes, opened by `open_named`."""
    return _read(open_named(path, directories), path, limit)


@contextmanager
def open_parent(root: str, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of a relative path below `root`; yields the descriptor, and the last part.

    No link is followed, not even in `root` itself, and no `..`. The descriptor is for `dir_fd=`.
    """
    *parts, name = path.split(os.sep)
    if os.pardir in parts or name in ("", os.curdir, os.pardir):
        raise _error(errno.EISDIR, "it is a directory", path)
    directory = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            try:
                inner = os.open(part, _DIRECTORY, dir_fd=directory)
            except FileNotFoundError:
                if not create:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=directory)
                inner = os.open(part, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        yield directory, name
    finally:
        os.close(directory)


@contextmanager
def replacing(
    path: FilePath,
    mode: int | None = 0o600,
    owner: tuple[int, int] | None = None,
    *,
    dir_fd: int | None = None,
) -> Iterator[BinaryIO]:
    """A new file in the directory of `path`, which gets this name when the block ends: a reader
    sees the old content or the new one, also after a power cut. After an exception the old file
    stays.

    `mode`: `None` as for any new file. `owner`: user and group, if this user may set them; else
    another group gets no permissions.
    """
    path = os.fsdecode(path)
    draft = os.path.join(os.path.dirname(path), f".new-{os.urandom(8).hex()}")
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = open_regular(draft, new, 0o666 if mode is None else 0o600, dir_fd=dir_fd)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if owner is not None:
                try:
                    os.fchown(descriptor, *owner)
                except PermissionError:
                    mode = None if mode is None else mode & ~0o070  # they were for its group
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        os.unlink(draft, dir_fd=dir_fd)
        raise


def open_as_given(path: FilePath, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    """Open what the user has typed, as the operating system opens it. May wait."""
    return open(path, mode)


def lock_file(descriptor: int, patience: float) -> None:
    """Lock a file. Raises `BlockingIOError` if another process has the lock for so many seconds."""
    import fcntl

    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise BlockingIOError(errno.EAGAIN, "another process has locked it") from None
            time.sleep(_INTERVAL)
        else:
            return


@contextmanager
def locked(path: FilePath, patience: float) -> Iterator[None]:
    """Hold the lock of a file during the block; it is created by `open_own`. Raises like
    `lock_file`."""
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        lock_file(descriptor, patience)
        yield
    finally:
        os.close(descriptor)


def lock_directory(directory: str, *, new: bool = False) -> int | None:
    """A descriptor with the lock of a directory; `None` if another process has it, or if the
    directory is not private to this user.

    The kernel releases the lock when the process ends: process ids are not compared, a directory
    without a lock was left by a killed conductor. The mode of a new directory is set first,
    independent of the umask and the parent directory.
    """
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with _closed_on_error(fd):
        if new:
            os.fchmod(fd, 0o700)
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
    os.close(fd)
    return None


# --------------------------------------------------------------------------------------------------


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:
        raise _error(errno.EINVAL, "it is not a path", path) from None


def _is_safe(directory: str) -> bool:
    """Whether no program in a sandbox can write to a directory of PATH, or create it."""
    real = os.path.realpath(directory)
    return os.path.isabs(directory) and not any(
        any(is_below(real, each) for each in writable)
        and not any(is_below(real, each) for each in protected)
        for writable, protected in _sandboxes
    )


def _root(path: str, roots: Iterable[str]) -> str | None:
    """The directory that a path is in; `None` if it is in none."""
    return next((root for root in roots if path.startswith(os.path.join(root, ""))), None)


def _check_regular(path: FilePath, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        number, name = _KINDS.get(kind, (errno.EINVAL, "a device"))
        raise _error(number, f"it is {name}, not a regular file", path)


def _read(descriptor: int, path: FilePath, limit: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        size = f"{limit >> 20} MiB" if limit >> 20 else f"{limit >> 10} KiB"
        raise _error(errno.EFBIG, f"it is larger than {size}", path)
    return data


@contextmanager
def _closed_on_error(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def _error(number: int, text: str, path: FilePath) -> OSError:
    return OSError(number, text, os.fsdecode(path))
