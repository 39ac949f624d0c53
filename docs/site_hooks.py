"""Hooks of mkdocs: the start page from the README, and reference pages made from the code.

The pages of docs/ are also read in a checkout, so they link to source files beside docs/; on the
site such links become plain text.
"""

from __future__ import annotations

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

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "index.md": (ROOT / "README.md").read_text(),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "security.md": (ROOT / "SECURITY.md").read_text(),
        "reference/commands.md": site_reference.commands(),
        "reference/chain-file.md": site_reference.chain_file(),
        "reference/components.md": site_reference.components(),
        "reference/errors.md": site_errors.errors_page(),
        "reference/log-events.md": site_reference.log_events(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links of pages beside docs/ into it; drop those that lead out of it."""
    from_root = page.file.src_uri in ("index.md", "contributing.md", "changelog.md", "security.md")

    def link(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, hash, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return found[0]
        path = path if from_root else f"docs/{path}"
        place = (ROOT / path).resolve()
        known = {"README.md": "index.md"} | {
            f"{name}.md": f"{name.lower()}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")
        }
        if place.parent == ROOT and place.name in known:
            return f"[{text}]({known[place.name]}{hash}{anchor})"
        if place.is_relative_to(DOCS) and place.is_file():
            return f"[{text}]({place.relative_to(DOCS).as_posix()}{hash}{anchor})"
        return text

    markdown = _LINK.sub(link, markdown).replace("(#__version__)", "(#version)")
    # The second heading of a name: GitHub appends -1, mkdocs _1.
    return re.sub(r"\(#([a-z_]+)-(\d)\)", r"(#\1_\2)", markdown)
