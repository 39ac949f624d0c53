"""Links between the pages of the documentation have targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them: repeated ones are numbered."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    made = [re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in headings]
    repeated = {f"{each}-{made[:place].count(each)}" for place, each in enumerate(made)}
    return {*made, *repeated}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_page_has_a_target(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []
