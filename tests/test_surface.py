"""`tests/surface.txt` has what users, authors and operators can name: commands, keys, public names.

    python tests/test_surface.py    # writes it again, after a change of one of these

One fact per line, sorted, so that each removal is one line of a diff. The facts are taken from the
generators of the reference pages, `pyproject.toml`, `__all__` and `ExitCode`.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import public_api

from conductor.exit_codes import ExitCode

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).with_name("surface.txt")
sys.path.insert(0, str(ROOT / "docs"))

import command_tree  # noqa: E402
import site_reference  # noqa: E402


def test_the_surface_is_what_the_file_says():
    remade, kept = surface().splitlines(), FILE.read_text().splitlines()

    gone = [f"- {line}" for line in kept if line not in remade]
    new = [f"+ {line}" for line in remade if line not in kept]
    assert remade == kept, "\n".join(["run `python tests/test_surface.py`:", *gone, *new])


def surface() -> str:
    facts = {
        *commands(),
        *chain_file_keys(),
        *packaging(),
        *public_names(),
        *(
            " ".join(f"log event: {event} ({level}) {fields}".replace("`", "").split())
            for event, level, fields, _ in site_reference.logged_events()
        ),
        *(f"exit code {each.value:3}: {each.name}" for each in ExitCode),
    }
    return "\n".join([*sorted(facts), ""])


def commands() -> Iterator[str]:
    for command, context, _ in command_tree.commands():
        yield f"command: {command_tree.usage(command, context)}"
        for option, _ in command_tree.options(command, context):
            if option.startswith("-"):  # arguments are in the usage
                yield f"option: {context.command_path} {option}"
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                yield f"option: {context.command_path} {', '.join(parameter.opts)} (hidden)"


def chain_file_keys() -> Iterator[str]:
    schema = site_reference.read_schema()
    yield from _keys("key: ", schema)
    for name, inner in schema["$defs"].items():
        if name.startswith("with "):
            yield from _keys(f"option of {name.removeprefix('with ')}: ", inner)
        else:
            title = site_reference.ITEMS[name]
            items = "[]" if title.startswith("An item of") else ""
            yield from _keys(f"key: {title.split('`')[1].rstrip(':')}{items}.", inner)


def _keys(above: str, schema: dict[str, Any]) -> Iterator[str]:
    for key, value, is_required in site_reference.flat_keys(above, schema):
        words = re.sub(r"one of \d+ \[names\]\(.*?\)", "name", site_reference.value_words(value))
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", words).replace("`", "")
        default = f", default {value['default']!r}" if "default" in value else ""
        yield f"{key} = {words or 'any value'}{', required' if is_required else default}"


def packaging() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group, points in {"scripts": project["scripts"], **project["entry-points"]}.items():
        yield from (f"entry point: {group} {name} = {target}" for name, target in points.items())
    yield from (f"extra: {name}" for name in project["optional-dependencies"])


def public_names() -> Iterator[str]:
    """The names of the modules of docs/api.md with their members, and those of two others."""
    for module in public_api.MODULES:
        for name, found in public_api.public_names(module):
            yield from (f"name: {module} {form}" for form in public_api.signatures(found))
            if found.is_class:
                for member in found.all_members.values():
                    if member.has_docstring and not member.name.startswith("_"):
                        for form in public_api.signatures(member):
                            yield f"name: {module} {name} . {form}"
    for where in ("chainfile", "schema"):
        for name in importlib.import_module(f"conductor.{where}").__all__:
            yield f"name: conductor.{where} {name}"
    for version in ("v1", "v2"):
        types = importlib.import_module(f"conductor.schema.{version}").__all__
        yield f"name: conductor.schema.{version}: {len(types)} types"


if __name__ == "__main__":
    FILE.write_text(surface())
