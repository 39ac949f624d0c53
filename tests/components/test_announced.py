"""What packages announce is read from the files of their installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.components.announced import announced
from conductor.components.loading import entry_points

ENTRY_POINTS = """\
[console_scripts]
redactor = redactor.cli:main

[conductor.components]
# ours
redact = redactor:Redact
count = redactor.more:Outer.Count [extra]
"""


def test_it_is_what_importlib_says() -> None:
    said = {name: point.value for name, point in entry_points().items()}

    assert announced() == said


def test_packages_in_every_folder_of_the_path_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, kind, text in (
        ("first", "dist-info", ENTRY_POINTS),
        ("second", "egg-info", "[conductor.components]\nredact = other:Redact\nmore=other:More\n"),
    ):
        place = tmp_path / folder / f"redactor-1.0.{kind}"
        place.mkdir(parents=True)
        (place / "entry_points.txt").write_text(text)
    (tmp_path / "first" / "without-1.0.dist-info").mkdir()
    folders = [tmp_path / "first", tmp_path / "second", tmp_path / "missing"]
    monkeypatch.setattr("sys.path", [*map(str, folders), "archive.zip"])

    assert announced() == {
        "redact": "redactor:Redact",
        "count": "redactor.more:Outer.Count",
        "more": "other:More",
    }
