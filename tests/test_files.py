"""What is opened, and what is refused at once, by who may have put it there."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path

import pytest

from conductor.files import (
    lock_file,
    open_inside,
    open_named,
    open_output,
    open_own,
    open_parent,
    open_regular,
    read_named,
    read_own,
    read_regular,
    write_own,
)

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@pytest.fixture
def project(tmp_path):
    """A directory that an agent can write, beside a key of the user."""
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / "key").write_text("key of the user")
    return directory


def put(kind: str, path: Path) -> Path:
    match kind:
        case "link":
            path.symlink_to(path.parent.parent / "key")
        case "link to nothing":
            path.symlink_to(path.parent.parent / "new")
        case "hard link":
            path.hardlink_to(path.parent.parent / "key")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
    return path


KINDS = ["link", "link to nothing", "hard link", "pipe", "directory", "device", "socket"]


@pytest.mark.parametrize("open_it", [open_output, lambda path: write_own(path, b"text")])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_was_put_in_the_place_of_an_output_is_written(kind, open_it, project):
    path = put(kind, project / "log")

    with pytest.raises(OSError, match=r"symbolic link|hard link|regular file|directory"):
        open_it(path)

    assert (project.parent / "key").read_text() == "key of the user"
    assert not (project.parent / "new").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_takes_the_place_of_a_file_just_before_it_is_opened_is_refused(
    kind, project, monkeypatch
):
    path = project / "file"
    path.touch()
    opened = os.open

    def exchange(name, *args, **kwargs):
        path.unlink()
        return opened(put(kind, path), *args, **kwargs)

    monkeypatch.setattr(os, "open", exchange)

    with pytest.raises(OSError, match=r"symbolic links|not a regular file"):
        read_own(path)


def test_a_new_file_is_for_its_owner_only(project):
    before = os.umask(0)
    try:
        descriptor = open_output(project / "log")
    finally:
        os.umask(before)
    with os.fdopen(descriptor):
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600


def test_a_file_is_written_as_a_whole(project):
    write_own(project / "state", b"long text")
    write_own(project / "state", b"text")

    assert read_own(project / "state") == b"text"


def test_the_standard_streams_are_outputs_by_their_names():
    for name in ("/dev/null", "/dev/stderr"):
        os.close(open_output(name))


def test_a_file_of_another_user_is_neither_read_nor_written_as_our_own(project, monkeypatch):
    path = project / "state"
    path.write_text("x")
    if os.geteuid() == 0:
        os.chown(path, 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    for flags in (os.O_RDONLY, os.O_RDWR):
        with pytest.raises(PermissionError, match="belongs to another user"):
            open_own(path, flags)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "socket"])
def test_only_regular_files_are_read_and_nothing_is_waited_for(kind, project):
    path = put(kind, project / "file")

    for read in (
        lambda: open_regular(path),
        lambda: open_inside(str(path), [str(project), "/dev"]),
        lambda: read_own(path, 100),
    ):
        with pytest.raises(OSError, match=r"symbolic link|regular file|directory"):
            read()


def test_a_link_of_the_user_is_read_one_of_a_project_only_inside_of_it(project):
    (project / "CLAUDE.md").write_text("rules")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    link = put("link", project / "key.md")
    (project / "above").symlink_to("..")

    other = project.parent / "spelled"
    other.symlink_to(project)

    assert read_regular(link, 100) == b"key of the user"
    for directory in (project, other):
        assert read_named(str(other / "AGENTS.md"), [str(directory)], 100) == b"rules"
        assert read_named(str(project.parent / "key"), [str(directory)], 100) == b"key of the user"
        for path in (link, directory / "above" / "key", other / "key.md"):
            for open_it in (open_inside, open_named):
                with pytest.raises(OSError, match="leads out of the project"):
                    open_it(str(path), [str(directory)])


@pytest.mark.parametrize("part", ["docs", "docs/key"])
def test_what_is_exchanged_for_a_link_after_the_check_leads_nowhere(project, monkeypatch, part):
    (project / "docs").mkdir()
    (project / "docs" / "key").write_text("text")
    resolve = os.path.realpath

    def then_exchange(path: str) -> str:
        real = resolve(path)
        if path.endswith("key"):
            (project / part).rename(project / "old")
            (project / part).symlink_to(project.parent / part.removeprefix("docs").strip("/"))
        return real

    monkeypatch.setattr(os.path, "realpath", then_exchange)

    with pytest.raises(OSError, match=r"Not a directory|not a regular file"):
        open_inside(str(project / "docs" / "key"), [str(project)])


def test_files_are_changed_through_the_directory_that_was_found(project):
    (project / "a").mkdir()
    (project / "link").symlink_to("..")

    with open_parent(str(project), "a/b/c", create=True) as (parent, name):
        os.close(open_own(name, APPEND, dir_fd=parent))
    assert (project / "a" / "b" / "c").is_file()
    for path in ("link/key", "../key", "a/../../key", "a/.", "."):
        with pytest.raises(OSError), open_parent(str(project), path):
            pass


def test_a_huge_file_is_not_read_into_memory(project):
    with (project / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(OSError, match="larger than 1 KiB"):
        read_regular(project / "sparse", 1024)


def test_a_lock_that_another_process_keeps_is_an_error(tmp_path):
    path = tmp_path / "a"
    path.write_text("")
    with path.open() as one, path.open() as other:
        lock_file(one.fileno(), 0.0)
        with pytest.raises(BlockingIOError, match="another process has locked it"):
            lock_file(other.fileno(), 0.01)
        fcntl.flock(one, fcntl.LOCK_UN)
        lock_file(other.fileno(), 0.0)
