"""Makes the table in docs/adapters.md from that in the code: `python docs/make_adapters.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from conductor.adapters.table import ADAPTERS

PAGE = Path(__file__).parent / "adapters.md"
_TABLE = re.compile(r"(<!-- adapters -->\n).*?(<!-- end -->)", re.S)


def make_page() -> str:
    """The page, with the table as it is in the code."""
    rows = "\n".join(_rows())
    return _TABLE.sub(lambda found: f"{found[1]}{rows}\n{found[2]}", PAGE.read_text())


def _rows() -> Iterator[str]:
    yield "| adapter | client | agent | stands before | without a setting | what it does |"
    yield "|---|---|---|---|---|---|"
    for row in ADAPTERS:
        side = "the first proxy" if row.side == "client" else "the agent"
        if row.is_behind_v1_v2:
            side += "; version 2: behind `v1_v2`"
        default = "if needed" if row.is_default else "off"
        cells = (f"`{row.name}`", row.client, row.agent, side, default, row.effect)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(make_page())
