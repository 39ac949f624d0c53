"""The commands of `chat` itself: `/exit`, and files for the next prompt. They precede those of the
agent with the same name."""

from __future__ import annotations

import os
import shlex
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from conductor.cli.prompt.attachments import Attachment, AttachmentError, read_attachments
from conductor.cli.prompt.declared_capabilities import DeclaredCapabilities

__all__ = ["ATTACHING", "LEAVING", "OWN_COMMANDS", "Attached", "Attaching", "attaching_command"]

Attaching: TypeAlias = Literal["/file", "/image"]

ATTACHING: Final[tuple[Attaching, ...]] = get_args(Attaching)
LEAVING: Final = ("/exit", "/quit")
OWN_COMMANDS: Final = (
    ("exit", "leave"),
    ("file", "send a file with the next prompt: /file PATH"),
    ("image", "send an image with the next prompt: /image PATH"),
)
"""Name and description of those that are completed."""


@attrs.define
class Attached:
    """Content blocks of the files that wait for the next prompt."""

    blocks: list[dict[str, Any]] = attrs.field(factory=list, init=False)

    def add(self, command: Attaching, path: str, capabilities: DeclaredCapabilities) -> Attachment:
        """Read a file for an agent with these capabilities. Raises `AttachmentError`."""
        if not path:
            raise AttachmentError(f"expected a path: {command} PATH")
        paths = [os.path.expanduser(path)]
        (found,) = read_attachments(*((paths, []) if command == "/file" else ([], paths)))
        self.blocks.append(found.block(capabilities))
        return found

    def take(self) -> list[dict[str, Any]]:
        blocks, self.blocks = self.blocks, []
        return blocks


def attaching_command(text: str) -> tuple[Attaching, str] | None:
    """Command and path of `/file PATH`; the path may be quoted as in a shell."""
    name, _, rest = text.partition(" ")
    for command in ATTACHING:
        if name == command and "\n" not in text:
            return command, _unquoted(rest.strip())
    return None


def _unquoted(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe in a name
        return text
    return words[0] if len(words) == 1 else text
