"""The file methods of `prompt --fs`."""

from __future__ import annotations

import os

import pytest

from conductor.cli.prompt.files import ClientFiles
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from conductor.errors import RequestError


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_bytes(b"one\r\ntwo\nthree")
    return root


@pytest.fixture
def files(root):
    return ClientFiles(str(root))


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({}, "one\r\ntwo\nthree"),
        ({"line": 2}, "two\nthree"),
        ({"line": 0, "limit": 1}, "one\r\n"),
        ({"line": 2, "limit": 1}, "two\n"),
        ({"line": 9}, ""),
        ({"limit": 0}, ""),
    ],
)
def test_lines_are_read_with_their_ends(files, root, part, content):
    assert files.read({"path": str(root / "a.txt"), **part}) == {"content": content}


def test_a_file_is_written_with_its_missing_directories(files, root):
    files.write({"path": str(root / "new" / "deep" / "b.txt"), "content": "x\r\ny\n"})

    assert (root / "new" / "deep" / "b.txt").read_bytes() == b"x\r\ny\n"


@pytest.mark.parametrize("params", [None, {}, {"path": 3}, {"path": "a.txt"}, {"path": "/a\0b"}])
def test_a_path_that_is_not_absolute_is_refused(files, params):
    with pytest.raises(RequestError, match="path must be an absolute path"):
        files.read(params)


def test_a_path_outside_of_the_directory_is_refused_also_behind_a_link(files, root, tmp_path):
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to(tmp_path / "secret")

    for path in (root / ".." / "secret", root / "link", tmp_path / "root2"):
        for act in (files.read, files.write):
            with pytest.raises(RequestError, match="is outside of") as refused:
                act({"path": str(path), "content": "changed"})
            assert refused.value.code == INVALID_PARAMS
    assert (tmp_path / "secret").read_text() == "s"


def test_a_pipe_is_refused_and_not_opened(files, root):
    os.mkfifo(root / "pipe")

    for act in (files.read, files.write):
        with pytest.raises(RequestError, match="not a regular file"):
            act({"path": str(root / "pipe"), "content": ""})


def test_a_huge_file_and_a_name_that_is_none_are_errors_of_the_request(files, root):
    with open(root / "sparse", "wb") as file:
        file.truncate(1 << 40)

    for path, problem in ((root / "sparse", "larger than 64 MiB"), (root / "\ud800", "not a path")):
        with pytest.raises(RequestError, match=problem):
            files.read({"path": str(path)})


@pytest.mark.parametrize("count", [{"line": -1}, {"limit": "2"}, {"limit": True}, {"line": 1.0}])
def test_what_is_no_count_is_refused(files, root, count):
    with pytest.raises(RequestError, match="must be a whole number"):
        files.read({"path": str(root / "a.txt"), **count})


def test_only_a_string_is_written(files, root):
    with pytest.raises(RequestError, match="content must be a string"):
        files.write({"path": str(root / "a.txt"), "content": None})
    assert (root / "a.txt").read_bytes().startswith(b"one")


def test_a_failure_of_the_file_system_is_an_error_of_the_request(files, root):
    (root / "binary").write_bytes(b"\xff")

    with pytest.raises(RequestError) as missing:
        files.read({"path": str(root / "none")})
    with pytest.raises(RequestError, match="is not UTF-8 text") as binary:
        files.read({"path": str(root / "binary")})
    with pytest.raises(RequestError, match="Not a directory") as below:
        files.write({"path": str(root / "a.txt" / "b"), "content": ""})

    codes = [each.value.code for each in (missing, binary, below)]
    assert codes == [RESOURCE_NOT_FOUND, INTERNAL_ERROR, INTERNAL_ERROR]
    assert missing.value.data == {"path": str(root / "none")}
