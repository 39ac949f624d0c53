"""Hooks of mkdocs: the start page from the README, and reference pages made from the code.

The pages of docs/ are also read in a checkout, so they link to source files beside docs/; on the
site such links become plain text.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

import site_errors  # noqa: E402
import site_reference  # noqa: E402

# Pages from files beside docs/.
_BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        **{uri: (ROOT / name).read_text() for name, uri in _BESIDE.items()},
        "reference/commands.md": site_reference.commands(),
        "reference/chain-file.md": site_reference.chain_file(),
        "reference/components.md": site_reference.components(),
        "reference/errors.md": site_errors.errors_page(),
        "reference/log-events.md": site_reference.log_events(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Point links of pages beside docs/ into it; drop those that lead out of it."""
    from_root = page.file.src_uri in _BESIDE.values()
    base = ROOT if from_root else (DOCS / page.file.src_uri).parent
    here = Path(page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, hash, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return found[0]
        place = Path(os.path.normpath(base / path))
        uri = _BESIDE.get(place.name, "") if place.parent == ROOT else ""
        if not uri and place.is_relative_to(DOCS):
            uri = place.relative_to(DOCS).as_posix()
        if files.get_file_from_path(uri) is None:
            return text
        return f"[{text}]({os.path.relpath(uri, here)}{hash}{anchor})"

    markdown = _LINK.sub(link, markdown).replace("(#__version__)", "(#version)")
    # GitHub needs `\\|` for code in a table, mkdocs would show the backslash.
    markdown = _ROW.sub(
        lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown
    )
    # The second heading of a name: GitHub appends -1, mkdocs _1.
    return re.sub(r"\(#([a-z_]+)-(\d)\)", r"(#\1_\2)", markdown)
