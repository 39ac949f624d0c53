"""Snapshots of a directory in a git repository of their own, and their restoration.

Git keeps the contents and knows the ignore rules: of the project it reads nothing but these, and it
writes nothing there. Files are read and written by `project_files`, which follows no links. So the
user's index, repository, hooks, attributes and git configuration are not used, and the directory
need not be a repository.

In the trees of the repository each part of a path begins with `_`: git refuses some names (`git~1`,
`.gitmodules` for a link), which a project may have. Ignored files, nested repositories, and files
that are large, unreadable or no files (pipes) are left out; a restoration does not delete them.
Symbolic links are stored as links.

What git keeps in the repository beside contents and refs is written anew each time (`HEAD`, the
configuration); a repository that is damaged all the same is set aside, and a new one begun.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import attrs
import msgspec
import trio

from conductor.files import lock_file, open_own, open_regular, outside_environment
from proxies.checkpoint.project_files import (
    Stamp,
    read_file,
    remove_file,
    unsaved_files,
    write_file,
)

__all__ = ["CheckpointEntry", "CheckpointError", "RestoreResult", "ShadowGit", "Snapshot"]

_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.untrackedCache": "false",
    "gc.auto": "0",
}
_HEAD: Final = "ref: refs/heads/none\n"
_CONFIG: Final = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
_REFS: Final = "refs/checkpoints/"
_LOCK: Final = "acp.lock"
_DAMAGED: Final = "damaged"
_MAX_RULES: Final = 1_000_000
"""Bytes of a file of ignore rules that are read."""
_PATIENCE: Final = 30.0
"""Seconds for git to tell which of some names are ignored."""
_CHUNK: Final = 32 << 20
"""Bytes of files that are restored at once."""
_SETTLED: Final = 2 * 10**9
"""Nanoseconds before a snapshot: a file changed later may change again with the same times."""


class CheckpointError(Exception):
    """A checkpoint was not taken or not restored; the text is the reason and its detail, such as
    the output of git, which may name files outside of the project."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class _GitError(CheckpointError):
    """Git failed: the repository may be damaged."""


@attrs.frozen
class CheckpointEntry:
    """One snapshot in the list of those that are kept."""

    number: int
    seconds: int
    """Time of the snapshot, in seconds since the epoch."""
    words: str

    @property
    def ref(self) -> str:
        return f"{_REFS}{self.number:09d}"


@attrs.frozen
class Snapshot:
    """A snapshot that was just taken."""

    checkpoint: CheckpointEntry
    left_out: Sequence[str]
    """Files that are too large, unreadable or no regular files, and nested repositories."""
    damaged: Path | None = None
    """Where the repository is that was damaged; this snapshot is the first of a new one."""


@attrs.frozen
class RestoreResult:
    """Changes of a restoration: numbers of files, and a snapshot to undo it."""

    written: int
    deleted: int
    undo: Snapshot
    """The state before."""
    failed: Sequence[str] = ()
    """Files that could not be written or deleted."""


class _SavedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the last snapshot."""

    stamp: Stamp
    mode: str
    object: str


class _LastFiles(msgspec.Struct):
    """The files of the last snapshot, by path, so that unchanged ones are not read again."""

    time: int = 0
    """Its beginning, in nanoseconds since the epoch."""
    files: dict[bytes, _SavedFile] = {}


@attrs.define
class _Scan:
    """What a snapshot is made of."""

    unchanged: dict[str, _SavedFile] = attrs.field(factory=dict)
    changed: list[str] = attrs.field(factory=list)
    left_out: list[str] = attrs.field(factory=list)
    added: dict[str, tuple[str, Stamp]] = attrs.field(factory=dict)
    """Mode and stamp of the changed files that were read, in the order of their marks."""


@attrs.frozen
class _TreeFile:
    mode: str
    object: str
    size: int = attrs.field(eq=False)


@attrs.define
class ShadowGit:
    """The snapshots of the directory `root`."""

    root: Path
    directory: Path
    """The `GIT_DIR`; created with the first snapshot."""
    max_file_bytes: int
    keep: int
    """Number of snapshots; the oldest are deleted."""

    async def take(self, words: str) -> Snapshot:
        """Take a snapshot, described by `words`. Raises `CheckpointError`."""
        async with self._locked():
            taken = await self._take(words)
            await self._delete_oldest()
            return taken

    async def checkpoints(self) -> Sequence[CheckpointEntry]:
        """The snapshots, oldest first."""
        if not (self.directory / "refs").is_dir():
            return []
        async with self._locked():
            await trio.to_thread.run_sync(self._prepare)
            return await self._known()

    async def restore(self, number: int) -> RestoreResult:
        """Restore the files of a snapshot and delete the files created since, after a snapshot of
        the present state. Raises `CheckpointError`, before any file is changed if possible."""
        async with self._locked():
            await trio.to_thread.run_sync(self._prepare)
            known = await self._known()
            target = next((each for each in known if each.number == number), None)
            if target is None:
                raise CheckpointError(f"There is no checkpoint {number}.")
            undo = await self._take(f"before the rewind to {number}")
            if undo.damaged is not None:
                raise CheckpointError("The checkpoints were damaged", f"they are in {undo.damaged}")
            wanted, present = await self._tree(target), await self._tree(undo.checkpoint)
            changes = {path: file for path, file in wanted.items() if present.get(path) != file}
            await trio.to_thread.run_sync(self._check_replaced, changes, present)
            failed = await self._write(changes, present)
            # Files that the restored .gitignore names were not part of the snapshot: they stay.
            created = [
                path for path in await self._listed() if path in present and path not in wanted
            ]
            deleted = await trio.to_thread.run_sync(self._delete, created, failed)
            await self._delete_oldest()
            return RestoreResult(len(changes) - len(failed), deleted, undo, failed)

    # ---- snapshots -------------------------------------------------------------------------------

    async def _take(self, words: str) -> Snapshot:
        """A snapshot; if the repository is damaged, one in a new one."""
        try:
            return await self._take_here(words)
        except (_GitError, OSError) as exc:
            with self._set_aside():
                try:
                    taken = await self._take_here(words)
                except (_GitError, OSError):
                    raise exc from None  # it has another reason, such as a full disk
            return attrs.evolve(taken, damaged=self.directory / _DAMAGED)

    async def _take_here(self, words: str) -> Snapshot:
        await trio.to_thread.run_sync(self._prepare)
        known = await self._known()
        number = known[-1].number + 1 if known else 1
        checkpoint = CheckpointEntry(number, int(time.time()), words)
        begin = time.time_ns()
        last = self._last_files()
        listed = await self._listed()
        scan = await trio.to_thread.run_sync(self._scan, listed, last)
        await self._import(checkpoint, scan)
        await self._tree(checkpoint)  # all of it can be read
        await trio.to_thread.run_sync(self._keep_files, scan, begin)
        return Snapshot(checkpoint, sorted(scan.left_out))

    async def _known(self) -> list[CheckpointEntry]:
        form = "--format=%(refname:lstrip=2)%00%(committerdate:unix)%00%(contents:subject)"
        lines = (await self._git("for-each-ref", form, _REFS)).decode(errors="replace")
        found = (line.split("\0") for line in lines.splitlines())
        return [
            CheckpointEntry(int(number), int(date), words)
            for number, date, words in found
            if number.isdecimal()
        ]

    async def _listed(self) -> list[str]:
        """The files that are not ignored; a directory that is left out ends with a slash: a nested
        repository, and one with rules that git cannot read.

        Git tells only which names are ignored. It would look for files by itself, but it would read
        what is in nested repositories, which may be a pipe or a device."""
        if odd := await trio.to_thread.run_sync(_odd_rules, self.root):
            raise CheckpointError(odd, os.fspath(self.root))
        found: list[str] = []
        directories = [""]
        while directories:
            entries = await trio.to_thread.run_sync(self._entries, directories)
            ignored = await self._ignored(entries)
            directories = []
            for path, kind in entries.items():
                if path in ignored:
                    continue
                if kind == "directory":
                    directories.append(path)
                else:
                    found.append(f"{path}/" if kind == "left out" else path)
        return found

    def _entries(self, directories: Sequence[str]) -> dict[str, str]:
        """What is in these directories, with its kind."""
        found: dict[str, str] = {}
        for directory in directories:
            with suppress(OSError), os.scandir(os.path.join(self.root, directory)) as entries:
                for entry in entries:
                    path = os.path.join(directory, entry.name)
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        is_left_out = _is_repository(entry.path) or _odd_rules(entry.path)
                        found[path] = "left out" if is_left_out else "directory"
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        found[path] = "file"
        return found

    async def _ignored(self, paths: Collection[str]) -> frozenset[str]:
        # With `./`, since `:` has a meaning at the beginning.
        names = b"".join(b"./%s\0" % os.fsencode(path) for path in paths)
        arguments = ("check-ignore", "-z", "--stdin", "--no-index")
        try:
            with trio.fail_after(_PATIENCE):
                found = await self._git(*arguments, stdin=names, statuses=(0, 1))
        except trio.TooSlowError:  # a pipe was put in the place of rules meanwhile
            raise CheckpointError("git does not tell which files are ignored") from None
        except _GitError as exc:  # for a link put in the way, for example: no damage
            raise CheckpointError(exc.reason, exc.detail) from None
        return frozenset(os.fsdecode(path[2:]) for path in found.split(b"\0"))

    def _scan(self, listed: Collection[str], last: _LastFiles) -> _Scan:
        scan = _Scan()
        for path in {os.fsdecode(path) for path in last.files} - {*listed}:
            with suppress(OSError):  # deleted
                mode = os.lstat(os.path.join(self.root, path)).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                    scan.left_out.append(path)  # there is a pipe, for example
        for path in listed:
            if path.endswith("/") or any(map(_is_git, path.split("/"))):
                scan.left_out.append(path)
                continue
            try:
                stamp = Stamp.of(os.lstat(os.path.join(self.root, path)))
            except OSError:  # deleted; or unreadable, which `read_file` finds
                scan.changed.append(path)
                continue
            saved = last.files.get(os.fsencode(path))
            if (
                saved is not None
                and saved.stamp == stamp
                and max(stamp.mtime, stamp.ctime) < last.time - _SETTLED
            ):
                scan.unchanged[path] = saved
            else:
                scan.changed.append(path)
        return scan

    async def _import(self, checkpoint: CheckpointEntry, scan: _Scan) -> None:
        """Read the changed files, and make the snapshot."""
        marks = f"--export-marks={self.directory / 'marks'}"
        with TemporaryFile(dir=self.directory) as stream:
            await trio.to_thread.run_sync(self._write_import, stream, checkpoint, scan)
            await self._git("fast-import", "--quiet", "--done", marks, stdin=stream.fileno())

    def _write_import(self, stream: BinaryIO, checkpoint: CheckpointEntry, scan: _Scan) -> None:
        for path in scan.changed:
            try:
                file = read_file(os.fspath(self.root), path, self.max_file_bytes)
            except FileNotFoundError:
                continue
            except OSError:
                scan.left_out.append(path)
                continue
            scan.added[path] = file.mode, file.stamp
            stream.write(b"blob\nmark :%d\ndata %d\n" % (len(scan.added), len(file.data)))
            stream.write(file.data + b"\n")
        words = checkpoint.words.encode(errors="replace")
        stream.write(b"commit %s\n" % checkpoint.ref.encode())
        stream.write(b"committer checkpoint <> %d +0000\n" % checkpoint.seconds)
        stream.write(b"data %d\n%s\n" % (len(words), words))
        for path, saved in scan.unchanged.items():
            stream.write(_entry(path, saved.mode, saved.object))
        for number, (path, (mode, _)) in enumerate(scan.added.items(), 1):
            stream.write(_entry(path, mode, f":{number}"))
        stream.write(b"done\n")
        stream.seek(0)

    def _last_files(self) -> _LastFiles:
        try:
            data = (self.directory / "files").read_bytes()
            return msgspec.msgpack.decode(data, type=_LastFiles)
        except (OSError, msgspec.DecodeError):
            return _LastFiles()

    def _keep_files(self, scan: _Scan, begin: int) -> None:
        lines = (self.directory / "marks").read_text().splitlines()
        objects = dict(line.split() for line in lines)
        files = {os.fsencode(path): saved for path, saved in scan.unchanged.items()}
        for number, (path, (mode, stamp)) in enumerate(scan.added.items(), 1):
            files[os.fsencode(path)] = _SavedFile(stamp, mode, objects[f":{number}"])
        draft = self.directory / "files.new"
        draft.write_bytes(msgspec.msgpack.encode(_LastFiles(begin, files)))
        draft.replace(self.directory / "files")

    async def _delete_oldest(self) -> None:
        known = await self._known()
        for old in known[: -self.keep]:
            await self._git("update-ref", "-d", old.ref)
        if known[-1].number % self.keep == 0:
            await self._git("gc", "--quiet", "--prune=now")

    # ---- restoration -----------------------------------------------------------------------------

    async def _tree(self, checkpoint: CheckpointEntry) -> dict[str, _TreeFile]:
        """The files of a snapshot, by path."""
        found = {}
        for line in (await self._git("ls-tree", "-r", "-z", "-l", checkpoint.ref)).split(b"\0"):
            if line:
                facts, _, path = line.partition(b"\t")
                mode, _, object, size = facts.decode().split()
                if not size.isdecimal():
                    raise _GitError(f"checkpoint {checkpoint.number} is damaged")
                plain = "/".join(part[1:] for part in os.fsdecode(path).split("/"))
                found[plain] = _TreeFile(mode, object, int(size))
        return found

    def _check_replaced(self, paths: Collection[str], present: Collection[str]) -> None:
        """Refuse to replace a directory by a file if that would delete files without a copy."""
        for path in paths:
            for inside in unsaved_files(os.fspath(self.root), path, present):
                raise CheckpointError(
                    f"{path} was a file and is a directory now, with a file "
                    f"that is in no checkpoint: move {inside} first."
                )

    async def _write(self, changes: Mapping[str, _TreeFile], present: Collection[str]) -> list[str]:
        """Write files of a snapshot; returns those for which that was not possible."""
        failed: list[str] = []
        for chunk in _chunks(changes):
            names = b"".join(b"%s\n" % changes[path].object.encode() for path in chunk)
            contents = io.BytesIO(await self._git("cat-file", "--batch", stdin=names))
            for path in chunk:
                file = changes[path]
                if contents.readline() != b"%s blob %d\n" % (file.object.encode(), file.size):
                    raise _GitError("a checkpoint is damaged", path)
                data = contents.read(file.size + 1)[:-1]
                arguments = (os.fspath(self.root), path, file.mode, data, present)
                try:
                    await trio.to_thread.run_sync(write_file, *arguments)
                except OSError:
                    failed.append(path)
        return failed

    def _delete(self, paths: Collection[str], failed: list[str]) -> int:
        """Delete files; returns how many."""
        deleted = 0
        for path in paths:
            try:
                deleted += remove_file(os.fspath(self.root), path)
            except OSError:
                failed.append(path)
        return deleted

    # ---- the repository --------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the repository, and mend what a git that was killed has left of it."""
        for inner in ("objects", "refs", "info"):
            (self.directory / inner).mkdir(exist_ok=True)
        (self.directory / "HEAD").write_text(_HEAD)
        (self.directory / "config").write_text(_CONFIG)
        for pattern in ("*.lock", "refs/**/*.lock", "fast_import_crash_*", "objects/pack/tmp_*"):
            for left in self.directory.glob(pattern):
                if left.name != _LOCK:
                    left.unlink()
        rules = _excludes_of_repository(self.root)
        (self.directory / "info" / "exclude").write_bytes(b"\n".join(rules) + b"\n")

    @contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Move the content of the repository into `damaged`, in place of what is there; back if
        the block fails."""
        aside = self.directory / _DAMAGED
        _remove(aside)
        aside.mkdir(mode=0o700)
        for path in self._content():
            path.rename(aside / path.name)
        try:
            yield
        except BaseException:
            for path in self._content():
                _remove(path)
            for path in list(aside.iterdir()):
                path.rename(self.directory / path.name)
            aside.rmdir()
            raise

    def _content(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if path.name not in (_LOCK, _DAMAGED)]

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the lock of the repository, which chains of several conductors may share."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(self.directory)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode):
            reason = "the directory of the checkpoints is not private to this user"
            raise CheckpointError(reason, str(self.directory))
        lock = open_own(self.directory / _LOCK, os.O_RDWR | os.O_CREAT)
        try:
            while True:
                try:
                    lock_file(lock, 0)
                    break
                except BlockingIOError:
                    await trio.sleep(0.05)
            yield
        finally:
            os.close(lock)

    async def _git(
        self, *arguments: str, stdin: bytes | int = b"", statuses: Collection[int] = (0,)
    ) -> bytes:
        settings = [part for item in _SETTINGS.items() for part in ("-c", "=".join(item))]
        environ = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        environ |= {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(self.directory),
            "GIT_INDEX_FILE": str(self.directory / "no-index"),
            "GIT_WORK_TREE": str(self.root),
            "LC_ALL": "C",
        }
        done: CompletedProcess[bytes] = await trio.run_process(
            ["git", *settings, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self.directory,  # git goes to the project by itself
            env=outside_environment(environ),
            start_new_session=True,  # Ctrl-C is for the chain
        )
        if done.returncode not in statuses:
            problem = done.stderr.decode(errors="replace").strip()[-500:]
            raise _GitError(f"git {arguments[0]} failed", problem)
        return done.stdout


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_repository(directory: str) -> bool:
    """Whether a directory is that of a repository, or of a worktree or submodule."""
    inside = os.path.join(directory, ".git")
    return os.path.isfile(inside) or os.path.lexists(os.path.join(inside, "HEAD"))


def _odd_rules(directory: str | Path) -> str | None:
    """Why git cannot read the ignore rules of a directory: it would wait for a pipe, and read a
    large file into its memory. `None` if it can."""
    try:
        found = os.lstat(os.path.join(directory, ".gitignore"))
    except OSError:
        return None
    if stat.S_ISREG(found.st_mode):
        return ".gitignore is too large" if found.st_size > _MAX_RULES else None
    is_link = stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)  # git ignores these
    return None if is_link else ".gitignore is not a regular file"


def _is_git(part: str) -> bool:
    """Whether a name is that of a repository, for some file system."""
    return part.casefold().rstrip(". ") == ".git"


def _entry(path: str, mode: str, object: str) -> bytes:
    inner = b"/".join(b"_" + part for part in os.fsencode(path).split(b"/"))
    for special, escaped in (b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"):
        inner = inner.replace(special, escaped)
    return b'M %s %s "%s"\n' % (mode.encode(), object.encode(), inner)


def _chunks(files: Mapping[str, _TreeFile]) -> Iterator[list[str]]:
    """The paths, in lists of files that are small enough to be held in memory together."""
    chunk: list[str] = []
    size = 0
    for path, file in files.items():
        if chunk and size + file.size > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(path)
        size += file.size
    if chunk:
        yield chunk


def _excludes_of_repository(root: Path) -> list[bytes]:
    """Patterns that the user's repository has outside of `root`: those of `.git/info/exclude`, and
    of `.gitignore` in the directories above, as far as they concern `root`."""
    found: list[bytes] = []
    for above in (root, *root.parents):
        prefix = os.fsencode(root.relative_to(above)) + b"/"
        files = [above / ".git" / "info" / "exclude"]
        if above != root:
            files.append(above / ".gitignore")
        lines = [line for file in files for line in _lines(file)]
        found[:0] = [rule for line in lines if (rule := _seen_from(prefix, line)) is not None]
        if (above / ".git").exists():
            return found
    return []


def _lines(path: Path) -> list[bytes]:
    """The lines of a file with ignore rules; none if it cannot be read, or is a pipe or a device,
    to which a link of the project may lead."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(_MAX_RULES).splitlines()
    except OSError:
        return []


def _seen_from(prefix: bytes, rule: bytes) -> bytes | None:
    """An ignore rule of a directory as a rule of its subdirectory `prefix`; `None` if it concerns
    other places."""
    mark, pattern = (b"!", rule[1:]) if rule.startswith(b"!") else (b"", rule)
    if prefix == b"./" or b"/" not in pattern.rstrip(b"/") or pattern.startswith(b"**/"):
        return rule
    anchored = pattern.lstrip(b"/")
    return mark + b"/" + anchored[len(prefix) :] if anchored.startswith(prefix) else None
