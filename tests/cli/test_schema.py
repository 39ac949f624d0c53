"""`acp-conductor schema`, from the outside."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from support.doc_snippets import ROOT

FILE = ROOT / "docs" / "chain.schema.json"
CHAINS = sorted((ROOT / "chains").glob("*.yaml"))


def test_the_schema_in_docs_is_current(run):
    result = run("schema")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == FILE.read_text(), "run `acp-conductor schema > docs/chain.schema.json`"


@pytest.mark.parametrize("path", CHAINS, ids=lambda path: path.stem)
def test_an_example_names_the_schema_and_satisfies_it(path):
    text = path.read_text()
    schema = json.loads(FILE.read_text())

    assert "# yaml-language-server: $schema=../docs/chain.schema.json\n" in text
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


@pytest.mark.slow
def test_a_component_that_cannot_be_imported_is_named_and_accepts_any_options(run, tmp_path):
    package = tmp_path / "broken-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: broken\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[conductor.components]\nbroken = missing_module:X\n")

    result = run("schema", env={"PYTHONPATH": str(tmp_path)})

    assert result.returncode == 1
    assert "broken: " in result.stderr
    assert json.loads(result.stdout)["$defs"]["with broken"] == {}
