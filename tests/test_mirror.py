"""Each module has a test file of its name, or a row in the table of `tests/README.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"


def rows() -> Iterator[tuple[list[str], list[str]]]:
    """Paths of modules without `.py`, and of their test files below `tests`."""
    directory = ""
    for line in (TESTS / "README.md").read_text().splitlines():
        if line.startswith("| `"):
            _, modules, tests, _ = line.split("|")
            if found := re.match(r" `(\S+/)` ", modules):
                directory = found[1]
                modules = modules[found.end() :]
            yield (
                [directory + name for name in re.findall(r"`(\S+)`", modules)],
                re.findall(r"`(\S+)`", tests),
            )


def own_test(module: Path) -> Path:
    inner = module.relative_to("conductor") if module.parts[0] == "conductor" else module
    return TESTS / inner.parent / f"test_{module.name}"


MODULES = [
    path.relative_to(ROOT)
    for package in ("conductor", "proxies", "bridges")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.name.startswith("_")
]


@pytest.mark.parametrize("directory", sorted({str(module.parent) for module in MODULES}))
def test_every_module_has_a_test_file_or_a_row(directory: str) -> None:
    listed = [module for modules, _ in rows() for module in modules]
    modules = [module for module in MODULES if str(module.parent) == directory]
    alone = [str(module.with_suffix("")) for module in modules if not own_test(module).exists()]

    assert [module for module in alone if module not in listed] == []
    of_directory = [each for each in listed if each.rpartition("/")[0] == directory]
    assert sorted(of_directory) == sorted(alone)


def test_the_table_names_files_that_exist() -> None:
    missing = {test for _, tests in rows() for test in tests if not (TESTS / test).exists()}

    assert missing == set()
