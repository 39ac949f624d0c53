"""The corpus of calls that the rules of `permissions` are tried against
(`tests/proxies/permissions/bypasses.yaml`), and the files that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["GROUPS", "filled", "make_places"]

_FILE = Path(__file__).parents[1] / "proxies" / "permissions" / "bypasses.yaml"
GROUPS: Final[list[dict[str, Any]]] = yaml.load(
    _FILE.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
)


def make_places(directory: Path) -> dict[str, Path]:
    """Make the files of the head of `bypasses.yaml`; their directories by name."""
    places = {each: directory / each for each in ("cwd", "home", "outside")}
    cwd, home, outside = places.values()
    files = (cwd / ".env", cwd / "src/a.py", outside / "shadow", outside / "deep/x")
    for file in (*files, home / ".ssh/id_rsa"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (home / "link").symlink_to(".ssh")
    (cwd / "src" / "link").symlink_to(outside)
    (cwd / "src" / "up").symlink_to("/")
    (cwd / "link").symlink_to(outside / "deep")
    (cwd / "a/b").mkdir(parents=True)
    (cwd / "a/b/out").symlink_to(outside)
    (cwd / "keys").symlink_to(home / ".ssh")
    return places


def filled(value: Any, places: Mapping[str, Path]) -> Any:
    """A call with the directories in place of their names in braces."""
    match value:
        case str():
            for name, place in places.items():
                value = value.replace(f"{{{name}}}", str(place))
            return value
        case list():
            return [filled(each, places) for each in value]
        case dict():
            return {filled(k, places): filled(v, places) for k, v in value.items()}
    return value
