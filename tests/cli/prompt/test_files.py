"""Files that are sent with a prompt, and the file methods of `prompt --fs`."""

from __future__ import annotations

import base64
import os

import pytest

from conductor.cli.prompt.conversation import DeclaredCapabilities
from conductor.cli.prompt.files import (
    AttachmentError,
    ClientFiles,
    prompt_blocks,
    read_attachments,
)
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from conductor.errors import RequestError

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
ABLE = DeclaredCapabilities(image=True, embedded_context=True)


def test_attachments_come_before_the_text_but_for_a_slash_command(tmp_path):
    (tmp_path / "a.py").write_text("print('ä')\n")
    (tmp_path / "data").write_bytes(b"\0\xff")
    (tmp_path / "shot").write_bytes(PNG)

    attachments = read_attachments(
        [str(tmp_path / "a.py"), str(tmp_path / "data")], [str(tmp_path / "shot")]
    )

    text, data = f"file://{tmp_path}/a.py", f"file://{tmp_path}/data"
    attached = [
        {
            "type": "resource",
            "resource": {"uri": text, "mimeType": "text/x-python", "text": "print('ä')\n"},
        },
        {
            "type": "resource",
            "resource": {"uri": data, "mimeType": "application/octet-stream", "blob": "AP8="},
        },
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()},
    ]
    said, command = ({"type": "text", "text": each} for each in ("explain", "/review it"))
    assert prompt_blocks("explain", attachments, ABLE) == [*attached, said]
    assert prompt_blocks("/review it", attachments, ABLE) == [command, *attached]


def test_an_agent_that_embeds_nothing_gets_a_link(tmp_path):
    (tmp_path / "a b.txt").write_text("text")

    (attachment,) = read_attachments([str(tmp_path / "a b.txt")], [])

    assert attachment.block(DeclaredCapabilities()) == {
        "type": "resource_link",
        "uri": f"file://{tmp_path}/a%20b.txt",
        "name": "a b.txt",
        "mimeType": "text/plain",
        "size": 4,
    }


def test_an_image_needs_an_agent_that_accepts_images(tmp_path):
    (tmp_path / "shot.png").write_bytes(PNG)
    attachments = read_attachments([], [str(tmp_path / "shot.png")])

    with pytest.raises(AttachmentError, match="the agent does not accept images"):
        prompt_blocks("look", attachments, DeclaredCapabilities(embedded_context=True))


@pytest.mark.parametrize(
    ("name", "problem"),
    [("pipe", "not a regular file"), ("a.txt", "is not an image"), ("large", "larger than 20 MiB")],
)
def test_what_cannot_be_attached_is_named(tmp_path, name, problem):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.txt").write_text("no picture")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(20 * 2**20 + 1)

    with pytest.raises(AttachmentError, match=problem):
        read_attachments([], [str(tmp_path / name)])


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


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (None, "path must be an absolute path"),
        ({"path": "a.txt"}, "path must be an absolute path"),
        ({"path": "/a\0b"}, "path must be an absolute path"),
        ({"path": "/a.txt", "line": -1}, "line must be a whole number"),
        ({"path": "/a.txt", "limit": True}, "limit must be a whole number"),
    ],
)
def test_malformed_params_are_refused(files, params, problem):
    with pytest.raises(RequestError, match=problem):
        files.read(params)


def test_only_a_string_is_written(files, root):
    with pytest.raises(RequestError, match="content must be a string"):
        files.write({"path": str(root / "a.txt"), "content": None})
    assert (root / "a.txt").read_bytes().startswith(b"one")


def test_a_failure_of_the_file_system_is_an_error_of_the_request(files, root):
    (root / "binary").write_bytes(b"\xff")
    with open(root / "sparse", "wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(RequestError) as missing:
        files.read({"path": str(root / "none")})
    with pytest.raises(RequestError, match="is not UTF-8 text") as binary:
        files.read({"path": str(root / "binary")})
    with pytest.raises(RequestError, match="larger than 64 MiB") as sparse:
        files.read({"path": str(root / "sparse")})
    with pytest.raises(RequestError, match="Not a directory") as below:
        files.write({"path": str(root / "a.txt" / "b"), "content": ""})

    codes = [each.value.code for each in (missing, binary, sparse, below)]
    assert codes == [RESOURCE_NOT_FOUND, INTERNAL_ERROR, INVALID_PARAMS, INTERNAL_ERROR]
    assert missing.value.data == {"path": str(root / "none")}
