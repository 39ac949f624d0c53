"""The code blocks of README, CONTRIBUTING and docs/, as a reader would paste them.

A block is named by its page and line (`README.md:92`). A Python or YAML block that is to be saved
as a file says under which name in a comment on its first line (`# context.py`).
"""

from __future__ import annotations

import re
from pathlib import Path

import attrs

__all__ = ["PAGES", "ROOT", "Snippet", "snippets"]

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")


@attrs.frozen
class Snippet:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        named = _FILE_NAME.match(self.text)
        return None if named is None else named[1]

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block: continued lines joined, comments left out."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"\s+#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    return [
        Snippet(
            str(page.relative_to(ROOT)), text.count("\n", 0, found.start()) + 1, found[1], found[2]
        )
        for found in _BLOCK.finditer(text)
    ]
