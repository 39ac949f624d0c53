"""No two classes of the packages have one name, so that a name can be searched for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCHEMA = ROOT / "conductor/schema"
PUBLIC_NAMES_OF_ACP_TYPES = {
    "SystemPrompt",  # the ready-made proxies `system_prompt` and `usage`
    "Usage",
    "ToolCall",  # of `@tool`; that of an agent is `AgentToolCall`
}


def class_names(path: Path) -> list[str]:
    return re.findall(r"^class _?(\w+)[:([]", path.read_text(), re.MULTILINE)


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        name
        for package in ("conductor", "proxies", "bridges")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.parent != SCHEMA  # both versions of the protocol
        for name in class_names(path)
    )
    types_of_acp = {*class_names(SCHEMA / "v1.py"), *class_names(SCHEMA / "v2.py")}

    assert {name for name, count in names.items() if count > 1} == set()
    assert names.keys() & types_of_acp == PUBLIC_NAMES_OF_ACP_TYPES
