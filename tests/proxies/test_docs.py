"""The examples in docs/proxies.md are valid, and every proxy has its paragraph."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conductor.chainfile import load
from conductor.plugins.loading import entry_points
from tests.support.plugins import load_plugin

ROOT = Path(__file__).parents[2]
PARAGRAPHS = dict(
    re.findall(
        r"^## (\w+)\n.*?^```yaml\n(.*?)^```",
        (ROOT / "docs" / "proxies.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
)


@pytest.mark.parametrize("name", PARAGRAPHS)
def test_the_example_of_a_paragraph_is_valid(name, tmp_path):
    text = "".join(f"  {line}\n" for line in PARAGRAPHS[name].splitlines())
    file = tmp_path / "chain.yaml"
    file.write_text(f"version: 1\nproxies:\n{text}agent:\n  use: test-agent\n")

    (spec,) = load(file, environ={"DOCS_TOKEN": "x"}).proxies
    assert type(load_plugin(spec)).__module__.removesuffix(".proxy") == f"proxies.{name}"


def test_the_components_without_a_paragraph_are_named_at_the_beginning():
    beginning, _, _ = (ROOT / "docs" / "proxies.md").read_text().partition("\n## ")

    for name in {*entry_points()} - {*PARAGRAPHS}:
        assert f"`{name}`" in beginning, name


def test_every_proxy_has_a_paragraph():
    modules = {path.stem for path in (ROOT / "proxies").glob("[!_]*")} - {"shared"}

    assert modules - {"sandbox_guard"} == set(PARAGRAPHS)
