"""Snapshots of a directory in a git repository of their own, and their restoration.

The repository has its own `GIT_DIR`, index and configuration: the user's index, repository, hooks
and git configuration are not used, and the directory need not be a repository. Ignored files,
nested repositories, and files that are large or unreadable are left out; a restoration never
touches them. Symbolic links are stored as links.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import attrs
import trio

__all__ = ["CheckpointEntry", "CheckpointError", "RestoreResult", "ShadowGit", "Snapshot"]

_SETTINGS: Final = {
    "advice.addEmbeddedRepo": "false",
    "core.autocrlf": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.symlinks": "true",
    "gc.auto": "0",
    "user.email": "checkpoint@localhost",
    "user.name": "checkpoint",
}
_ATTRIBUTES: Final = "* -text !eol !filter !ident !working-tree-encoding\n"
"""Files are stored byte for byte; the `.gitattributes` of the project do not count."""
_REFS: Final = "refs/checkpoints/"
_MAX_RULES: Final = 1_000_000
"""Bytes of a file of ignore rules that are read."""


class CheckpointError(Exception):
    """A checkpoint was not taken or not restored; the text is the reason and its detail, such as
    the output of git, which may name files outside of the project."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


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
    """Files that are too large or unreadable, and nested repositories."""


@attrs.frozen
class RestoreResult:
    """Changes of a restoration: numbers of files, and a snapshot to undo it."""

    written: int
    deleted: int
    undo: Snapshot
    """The state before."""


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
        if not self._exists:
            return []
        form = "--format=%(refname:lstrip=2)%00%(committerdate:unix)%00%(contents:subject)"
        lines = (await self._git("for-each-ref", form, _REFS)).decode(errors="replace")
        found = (line.split("\0") for line in lines.splitlines())
        return [CheckpointEntry(int(number), int(date), words) for number, date, words in found]

    async def restore(self, number: int) -> RestoreResult:
        """Restore the files of a snapshot and delete the files created since, after a snapshot of
        the present state. Raises `CheckpointError`, before any file is changed if possible."""
        async with self._locked():
            target = next(
                (each for each in await self.checkpoints() if each.number == number), None
            )
            if target is None:
                raise CheckpointError(f"There is no checkpoint {number}.")
            commit = (await self._git("rev-parse", target.ref)).strip().decode()
            undo = await self._take(f"before the rewind to {number}")
            present = set(await self._paths("ls-files", "-z", "-c"))
            differing = await self._paths("diff", "-z", "--name-only", undo.checkpoint.ref, commit)
            await trio.to_thread.run_sync(self._check_replaced, differing, present)
            await self._git("read-tree", commit)
            wanted = set(await self._paths("ls-files", "-z", "-c"))
            await self._git("update-index", "-q", "--refresh", may_fail=True)
            await self._git("checkout-index", "-f", "-a")
            # Files that the restored .gitignore names were not part of the snapshot: they stay.
            created = await self._paths("ls-files", "-z", "-o", "--exclude-standard")
            deleted = [path for path in created if path in present]
            await trio.to_thread.run_sync(self._delete, deleted)
            await self._delete_oldest()
            written = sum(path in wanted for path in differing)
            return RestoreResult(written, len(deleted), undo)

    # ---- steps -----------------------------------------------------------------------------------

    async def _take(self, words: str) -> Snapshot:
        await self._prepare()
        found = await self._paths("ls-files", "-z", "-c", "-o", "--exclude-standard")
        left_out = await trio.to_thread.run_sync(self._unsuitable, found)
        ignored = await self._paths("ls-files", "-z", "-c", "-i", "--exclude-standard")
        removed = [*(path.rstrip(b"/") for path in left_out), *ignored, *await self._repositories()]
        if removed:
            await self._git("update-index", "--force-remove", "-z", "--stdin", stdin=_nul(removed))
        specs = [b".", *(b":(exclude,literal)" + path for path in left_out)]
        await self._git(
            "add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=_nul(specs)
        )
        tree = (await self._git("write-tree")).strip().decode()
        commit = await self._git("commit-tree", tree, stdin=words.encode(errors="replace"))
        known = await self.checkpoints()
        number = known[-1].number + 1 if known else 1
        checkpoint = CheckpointEntry(number, int(time.time()), words)
        await self._git("update-ref", checkpoint.ref, commit.strip().decode())
        return Snapshot(checkpoint, [os.fsdecode(path) for path in left_out])

    async def _repositories(self) -> list[bytes]:
        """The nested repositories in the index. `git add` would run `git status` in each, and with
        it the programs that its configuration names."""
        entries = await self._paths("ls-files", "-z", "-s")
        return [entry.partition(b"\t")[2] for entry in entries if entry.startswith(b"160000 ")]

    async def _delete_oldest(self) -> None:
        known = await self.checkpoints()
        for old in known[: -self.keep]:
            await self._git("update-ref", "-d", old.ref)
        if known[-1].number % self.keep == 0:
            await self._git("gc", "--quiet", "--prune=now")

    @property
    def _exists(self) -> bool:
        return (self.directory / "HEAD").exists()

    async def _prepare(self) -> None:
        if not self._exists:
            await self._git("init", "-q", "--template=")
        (self.directory / "index.lock").unlink(missing_ok=True)  # of a git that was killed
        info = self.directory / "info"
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_ATTRIBUTES)
        excludes = await trio.to_thread.run_sync(_excludes_of_repository, self.root)
        (info / "exclude").write_bytes(b"\n".join(excludes) + b"\n")

    def _unsuitable(self, paths: Collection[bytes]) -> list[bytes]:
        """The paths that are left out."""
        found = []
        for path in dict.fromkeys(paths):
            if path.endswith(b"/"):  # a nested repository
                found.append(path)
                continue
            file = os.path.join(os.fsencode(self.root), path)
            try:
                status = os.lstat(file)
            except OSError:
                continue  # deleted
            if not stat.S_ISREG(status.st_mode):
                continue
            if status.st_size > self.max_file_bytes or not os.access(file, os.R_OK):
                found.append(path)
        return found

    def _check_replaced(self, paths: Collection[bytes], present: Collection[bytes]) -> None:
        """Refuse to replace a directory by a file if that would delete files without a copy."""
        root = os.fsencode(self.root)
        for path in paths:
            top = os.path.join(root, path)
            if os.path.islink(top) or not os.path.isdir(top):
                continue
            for where, _, names in os.walk(top):
                for name in names:
                    inside = os.path.relpath(os.path.join(where, name), root)
                    if inside not in present:
                        raise CheckpointError(
                            f"{os.fsdecode(path)} was a file and is a directory now, with a file "
                            f"that is in no checkpoint: move {os.fsdecode(inside)} first."
                        )

    def _delete(self, paths: Collection[bytes]) -> None:
        """Delete files, and the directories that are empty then."""
        root = os.fsencode(self.root)
        for path in paths:
            os.unlink(os.path.join(root, path))
            directory = os.path.dirname(path)
            while directory:
                try:
                    os.rmdir(os.path.join(root, directory))
                except OSError:
                    break  # not empty
                directory = os.path.dirname(directory)

    # ---- git -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Hold the lock of the repository, which chains of several conductors may share."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.directory / "acp.lock").open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await trio.sleep(0.05)
            yield

    async def _paths(self, *arguments: str) -> list[bytes]:
        return [path for path in (await self._git(*arguments)).split(b"\0") if path]

    async def _git(self, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes:
        settings = [part for item in _SETTINGS.items() for part in ("-c", "=".join(item))]
        environ = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        environ |= {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(self.directory),
            "GIT_WORK_TREE": str(self.root),
            "LC_ALL": "C",
        }
        done: CompletedProcess[bytes] = await trio.run_process(
            ["git", *settings, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self.root,
            env=environ,
            start_new_session=True,  # Ctrl-C is for the chain
        )
        if done.returncode != 0 and not may_fail:
            problem = done.stderr.decode(errors="replace").strip()[-500:]
            raise CheckpointError(f"git {arguments[0]} failed", problem)
        return done.stdout


def _nul(paths: Sequence[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


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
        with open(path, "rb", opener=_open_at_once) as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_MAX_RULES).splitlines() if is_regular else []
    except OSError:
        return []


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _seen_from(prefix: bytes, rule: bytes) -> bytes | None:
    """An ignore rule of a directory as a rule of its subdirectory `prefix`; `None` if it concerns
    other places."""
    mark, pattern = (b"!", rule[1:]) if rule.startswith(b"!") else (b"", rule)
    if prefix == b"./" or b"/" not in pattern.rstrip(b"/") or pattern.startswith(b"**/"):
        return rule
    anchored = pattern.lstrip(b"/")
    return mark + b"/" + anchored[len(prefix) :] if anchored.startswith(prefix) else None
