"""Files in the directories of a session: what is read, what is written, and what is refused."""

from __future__ import annotations

import os
import stat

import pytest

from conductor.proxy import RequestError
from proxies.shared import session_files
from proxies.shared.session_files import read_text, write_text

TEXT = "one\ntwo\r\nthree"


@pytest.fixture
def inside(tmp_path):
    """The directory of a session, beside one that is not."""
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return directory


def read(path, directory, **part):
    return read_text(str(path), [str(directory)], **part)


def refusal(function, *args):
    with pytest.raises(RequestError) as caught:
        function(*args)
    return caught.value


@pytest.mark.parametrize(
    ("line", "limit", "expected"),
    [
        (None, None, TEXT),
        (0, None, TEXT),
        (1, 1, "one\n"),
        (2, 1, "two\r\n"),
        (2, None, "two\r\nthree"),
        (3, 9, "three"),
        (4, 1, ""),
        (2**32 - 1, 2**32 - 1, ""),
        (1, 0, ""),
    ],
)
def test_lines_count_from_one_and_keep_their_ends(inside, monkeypatch, line, limit, expected):
    monkeypatch.setattr(session_files, "_PIECE", 4)
    (inside / "a.txt").write_bytes(TEXT.encode())

    assert read(inside / "a.txt", inside, line=line, limit=limit) == expected


def test_a_long_file_is_read_in_parts(inside, monkeypatch):
    monkeypatch.setattr(session_files, "_MAX_TEXT", 10)
    (inside / "a.txt").write_text("12345\n" * 5)

    refused = refusal(read, inside / "a.txt", inside)
    assert "ask for fewer lines" in refused.message
    assert read(inside / "a.txt", inside, line=4, limit=1) == "12345\n"


def test_a_line_that_is_too_far_away_is_not_searched_for(inside, monkeypatch):
    monkeypatch.setattr(session_files, "_MAX_SCANNED", 10)
    (inside / "a.txt").write_bytes(b"")
    os.truncate(inside / "a.txt", 1 << 40)  # a hole: 1 TiB without a line end

    with pytest.raises(RequestError, match="not in the first GiB"):
        read(inside / "a.txt", inside, line=2)


@pytest.mark.parametrize("data", [b"a\xff", "ä".encode("utf-16"), b"ab\xc3"])
def test_what_is_not_utf_8_is_refused(inside, data):
    (inside / "a.txt").write_bytes(data)

    assert "is not text in UTF-8" in refusal(read, inside / "a.txt", inside).message


@pytest.mark.parametrize(
    "path", ["../secret.txt", "link.txt", "loop", "away/secret.txt", "sub/../../secret.txt", ".."]
)
@pytest.mark.parametrize("function", [read_text, lambda *args: write_text(*args, "x")])
def test_what_leads_out_is_refused(inside, path, function):
    (inside / "sub").mkdir()
    (inside / "link.txt").symlink_to("../secret.txt")
    (inside / "away").symlink_to("..")
    (inside / "loop").symlink_to("loop")

    assert refusal(function, f"{inside}/{path}", [str(inside)]).code != -32002
    assert (inside.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize(
    "path", ["a.txt", "", "~/a.txt", "/proc/self/environ", "/dev/null", "/dev/fd/0", "/a\0b"]
)
def test_paths_that_are_relative_or_of_no_disk_are_refused_everywhere(path):
    assert refusal(read_text, path, ["/"]).code == -32602


def test_a_session_without_directories_has_no_files(inside):
    (inside / "a.txt").write_text("a")

    refused = refusal(read_text, f"{inside}/a.txt", [])
    assert refused.message.endswith("not in the directories of the session: it has none")


def test_links_inside_are_followed_and_stay_links(inside):
    (inside / "new").mkdir()
    (inside / "old").symlink_to("new")
    (inside / "b.txt").symlink_to("old/a.txt")
    write_text(f"{inside}/b.txt", [str(inside)], "text")  # it leads to no file yet

    assert (inside / "new/a.txt").read_text() == "text"
    assert (inside / "b.txt").is_symlink()
    assert read(inside / "old/a.txt", inside) == "text"


def test_a_directory_that_is_a_link_is_the_directory_that_it_leads_to(inside):
    (inside / "a.txt").write_text("a")
    (inside.parent / "other").symlink_to(inside)

    assert read(inside.parent / "other/a.txt", inside) == "a"
    assert read(inside / "a.txt", inside.parent / "other") == "a"


@pytest.mark.parametrize("path", ["missing/../a.txt", "missing.txt", "a.txt/../a.txt", "a.txt/b"])
def test_a_path_that_the_operating_system_cannot_follow_is_an_error(inside, path):
    (inside / "a.txt").write_text("a")

    refused = refusal(read_text, f"{inside}/{path}", [str(inside)])
    assert refused.code == (-32002 if "missing" in path else -32603)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("function", [read_text, lambda *args: write_text(*args, "x")])
def test_what_is_no_regular_file_is_refused_without_waiting(inside, make, function):
    make(inside / "thing")

    assert refusal(function, f"{inside}/thing", [str(inside)]).code == -32602


def test_a_link_that_is_put_in_the_way_is_not_followed(inside, monkeypatch):
    (inside / "sub").mkdir()
    (inside / "sub/secret.txt").write_text("mine")
    resolve = os.path.realpath

    def swap(path, **options):
        found = resolve(path, **options)
        if path.endswith("secret.txt"):
            (inside / "sub").rename(inside / "gone")
            (inside / "sub").symlink_to("..")
        return found

    monkeypatch.setattr(os.path, "realpath", swap)

    assert refusal(read, inside / "sub/secret.txt", inside).code == -32603


def test_a_file_is_created_with_its_directories(inside):
    write_text(f"{inside}/a/b/c.txt", [str(inside)], TEXT)

    assert (inside / "a/b/c.txt").read_bytes() == TEXT.encode()
    assert os.listdir(inside / "a/b") == ["c.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o640])
def test_permissions_stay(inside, mode):
    (inside / "a.txt").write_text("old")
    (inside / "a.txt").chmod(mode)
    write_text(f"{inside}/a.txt", [str(inside)], "new")

    assert (inside / "a.txt").read_text() == "new"
    assert stat.S_IMODE((inside / "a.txt").stat().st_mode) == mode


def test_group_permissions_go_if_the_group_cannot_stay(inside, monkeypatch):
    (inside / "a.txt").write_text("old")
    (inside / "a.txt").chmod(0o664)

    def refuse(*args):
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    write_text(f"{inside}/a.txt", [str(inside)], "new")

    assert stat.S_IMODE((inside / "a.txt").stat().st_mode) == 0o604


def test_a_file_that_may_not_be_written_stays(inside, monkeypatch):
    (inside / "a.txt").write_text("old")
    monkeypatch.setattr(os, "access", lambda *args, **options: False)  # root may write all

    refused = refusal(write_text, f"{inside}/a.txt", [str(inside)], "new")
    assert refused.message.endswith("cannot be used: Permission denied")
    assert (inside / "a.txt").read_text() == "old"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(inside, monkeypatch):
    (inside / "a.txt").write_text("old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    refused = refusal(write_text, f"{inside}/a.txt", [str(inside)], "new")
    assert refused.message.endswith("No space left on device")
    assert os.listdir(inside) == ["a.txt"]
    assert (inside / "a.txt").read_text() == "old"


def test_a_text_that_is_not_unicode_is_refused(inside):
    assert refusal(write_text, f"{inside}/a.txt", [str(inside)], "\ud800").code == -32602
    assert os.listdir(inside) == []
