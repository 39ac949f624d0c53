"""`acp-conductor schema`, from the outside."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from support.doc_snippets import ROOT

from conductor.cli import plugin_process, schema
from conductor.cli.command_group import acp_conductor

FILE = ROOT / "docs" / "chain.schema.json"
CHAINS = sorted((ROOT / "chains").glob("*.yaml"))


def in_this_process(module, questions, kind, seconds):
    for name, question in questions.items():
        answer = msgspec.json.decode(schema._describe(msgspec.json.encode(question)))
        yield name, *answer


def test_the_schema_in_docs_is_current(monkeypatch):
    monkeypatch.setattr(plugin_process, "ask_each", in_this_process)

    result = CliRunner().invoke(acp_conductor, ["schema"])

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == FILE.read_text(), "run `acp-conductor schema > docs/chain.schema.json`"


def without_description(path: str, schema: object) -> list[str]:
    """The keys of the mappings in a schema that have no description."""
    match schema:
        case {"properties": properties}:
            return [
                each
                for key, value in properties.items()
                for each in (
                    *([] if "description" in value else [f"{path}.{key}"]),
                    *without_description(f"{path}.{key}", value),
                )
            ]
        case {"items": inner} | {"additionalProperties": dict(inner)}:
            return without_description(path, inner)
        case {"anyOf": members}:
            return [each for one in members for each in without_description(path, one)]
    return []


def test_every_option_of_the_ready_made_components_is_described():
    definitions = json.loads(FILE.read_text())["$defs"]
    options = {name: each for name, each in definitions.items() if name.startswith("with ")}

    assert len(options) > 30
    assert [name for name, each in options.items() if not each.get("description")] == []
    missing = [each for name in options for each in without_description(name, options[name])]
    assert missing == []


@pytest.mark.parametrize("path", CHAINS, ids=lambda path: path.stem)
def test_an_example_names_the_schema_and_satisfies_it(path):
    text = path.read_text()
    schema_of_docs = json.loads(FILE.read_text())

    assert "# yaml-language-server: $schema=../docs/chain.schema.json\n" in text
    jsonschema.Draft202012Validator(schema_of_docs).validate(yaml.safe_load(text))


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
