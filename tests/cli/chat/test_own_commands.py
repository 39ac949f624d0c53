"""Files and images for the next prompt of `chat`."""

from __future__ import annotations

import pytest

from conductor.cli.chat.own_commands import Attached, attaching_command
from conductor.cli.prompt.attachments import AttachmentError
from conductor.cli.prompt.declared_capabilities import DeclaredCapabilities

NOTHING = DeclaredCapabilities()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/file notes.txt", ("/file", "notes.txt")),
        ("/image  'a b.png' ", ("/image", "a b.png")),
        ("/file a b.txt", ("/file", "a b.txt")),
        ("/file it's.txt", ("/file", "it's.txt")),
        ("/file", ("/file", "")),
        ("/files notes.txt", None),
        ("/file a\nand more", None),
        ("say /file", None),
    ],
)
def test_the_path_is_the_rest_of_the_line(text, found):
    assert attaching_command(text) == found


def test_blocks_are_taken_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes.txt").write_text("x")
    attached = Attached()
    attached.add("/file", "~/notes.txt", NOTHING)

    assert [block["type"] for block in attached.take()] == ["resource_link"]
    assert attached.take() == []


@pytest.mark.parametrize(
    ("command", "path", "problem"),
    [("/file", "", "expected a path"), ("/image", "dot.png", "does not accept images")],
)
def test_what_cannot_be_sent_is_refused_when_it_is_attached(tmp_path, command, path, problem):
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    attached = Attached()

    with pytest.raises(AttachmentError, match=problem):
        attached.add(command, path and f"{tmp_path}/{path}", NOTHING)

    assert attached.take() == []
