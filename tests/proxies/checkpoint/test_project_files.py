"""Files of a project while another process exchanges its directories by links."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from conductor.files import open_parent
from proxies.checkpoint import project_files
from proxies.checkpoint.project_files import read_file, remove_file, write_file


@pytest.fixture
def outside(tmp_path):
    """A directory with a file, to which `project/dir` is a link."""
    (tmp_path / "project").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("outside")
    (tmp_path / "project" / "dir").symlink_to(tmp_path / "outside")
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "project")


def test_nothing_is_deleted_behind_a_link(outside, root):
    assert not remove_file(root, "dir/a")
    assert (outside / "a").read_text() == "outside"


def test_nothing_is_read_behind_a_link(outside, root):
    with pytest.raises(NotADirectoryError):
        read_file(root, "dir/a", 100)


def test_a_directory_is_made_where_a_link_is_and_nothing_is_written_behind_it(
    outside, root, tmp_path
):
    write_file(root, "dir/a", "100644", b"inside", {"dir/a"})

    assert (outside / "a").read_text() == "outside"
    assert not (tmp_path / "project" / "dir").is_symlink()
    assert (tmp_path / "project" / "dir" / "a").read_text() == "inside"


@pytest.fixture
def exchanged(root, outside, tmp_path, monkeypatch):
    """A directory that is exchanged by a link as soon as it is open."""
    directory = tmp_path / "project" / "real"
    directory.mkdir()
    (directory / "a").write_text("inside")

    @contextmanager
    def exchange(root, path, **options):
        with open_parent(root, path, **options) as found:
            if path == "real/a" and not directory.is_symlink():
                directory.rename(tmp_path / "project" / "moved")
                directory.symlink_to(outside)
            yield found

    monkeypatch.setattr(project_files, "open_parent", exchange)
    return tmp_path / "project" / "moved"


def test_a_file_is_deleted_where_its_directory_is_after_an_exchange(exchanged, outside, root):
    assert remove_file(root, "real/a")
    assert not (exchanged / "a").exists()
    assert (outside / "a").read_text() == "outside"


def test_a_file_is_read_where_its_directory_is_after_an_exchange(exchanged, root):
    assert read_file(root, "real/a", 100).data == b"inside"


def test_a_file_is_written_where_its_directory_is_after_an_exchange(exchanged, outside, root):
    write_file(root, "real/a", "100644", b"new", {"real/a"})
    assert (exchanged / "a").read_text() == "new"
    assert (outside / "a").read_text() == "outside"


def test_a_file_with_another_name_outside_is_replaced_and_not_written(outside, root, tmp_path):
    (tmp_path / "project" / "b").hardlink_to(outside / "a")

    write_file(root, "b", "100644", b"inside", {"b"})

    assert (outside / "a").read_text() == "outside"
    assert (tmp_path / "project" / "b").read_text() == "inside"


def test_a_directory_is_replaced_only_if_all_its_files_have_copies(root, outside, tmp_path):
    directory = tmp_path / "project" / "d" / "e"
    directory.mkdir(parents=True)
    (directory / "saved").touch()
    (directory / "mine").touch()
    (directory / "link").symlink_to(outside)
    saved = {"d/e/saved", "d/e/link", "d/e/link/a"}

    with pytest.raises(FileExistsError, match="without a copy"):
        write_file(root, "d", "100644", b"", saved)
    assert {path.name for path in (tmp_path / "project").iterdir()} == {"d", "dir"}
    assert (directory / "saved").exists()

    (directory / "mine").unlink()
    write_file(root, "d", "120000", b"target", saved)
    assert (tmp_path / "project" / "d").readlink().name == "target"
    assert (outside / "a").exists()
