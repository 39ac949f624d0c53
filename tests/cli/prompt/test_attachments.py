"""Files and images as content blocks."""

from __future__ import annotations

import base64
import os

import pytest

from conductor.cli.prompt.attachments import AttachmentError, prompt_blocks, read_attachments
from conductor.cli.prompt.conversation import DeclaredCapabilities

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
ABLE = DeclaredCapabilities(image=True, embedded_context=True)


def test_attachments_come_before_the_text(tmp_path):
    (tmp_path / "a.py").write_text("print('ä')\n")
    (tmp_path / "shot").write_bytes(PNG)

    attachments = read_attachments([str(tmp_path / "a.py")], [str(tmp_path / "shot")])

    assert prompt_blocks("explain", attachments, ABLE) == [
        {
            "type": "resource",
            "resource": {
                "uri": f"file://{tmp_path}/a.py",
                "mimeType": "text/x-python",
                "text": "print('ä')\n",
            },
        },
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()},
        {"type": "text", "text": "explain"},
    ]


def test_a_slash_command_comes_before_the_attachments(tmp_path):
    (tmp_path / "a.py").write_text("1")
    attachments = read_attachments([str(tmp_path / "a.py")], [])

    blocks = prompt_blocks("/review it", attachments, ABLE)

    assert [block["type"] for block in blocks] == ["text", "resource"]


def test_a_file_that_is_not_text_is_embedded_in_base64(tmp_path):
    (tmp_path / "data").write_bytes(b"\0\xff")

    (attachment,) = read_attachments([str(tmp_path / "data")], [])

    assert attachment.block(ABLE)["resource"] == {
        "uri": f"file://{tmp_path}/data",
        "mimeType": "application/octet-stream",
        "blob": "AP8=",
    }


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
    [("missing", "does not exist"), ("pipe", "not a regular file"), (".", "not a regular file")],
)
def test_what_cannot_be_attached_is_named(tmp_path, name, problem):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(AttachmentError, match=problem):
        read_attachments([str(tmp_path / name)], [])


def test_an_image_is_recognized_by_its_content_or_name(tmp_path):
    (tmp_path / "a.txt").write_text("no picture")

    with pytest.raises(AttachmentError, match="is not an image"):
        read_attachments([], [str(tmp_path / "a.txt")])


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(20 * 2**20 + 1)

    with pytest.raises(AttachmentError, match="larger than 20 MiB"):
        read_attachments([str(tmp_path / "large")], [])
