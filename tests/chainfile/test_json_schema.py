"""The JSON Schema accepts what the reader of chain files accepts, and finds common mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal

import attrs
import jsonschema
import pytest
import yaml

from conductor import chainfile
from conductor.chainfile.json_schema import chain_file_schema, options_schema
from conductor.limits import Limits


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Rule:
    """A rule."""

    pattern: str
    """Where it applies."""
    inner: list[Rule] = attrs.field(factory=list)


@attrs.define
class Plugin:
    """Do things.

    Options:
        files      paths, relative to
                   the session's directory
        colour     one of two
                   red     for stop
        lambda     a Greek letter
    size   no option any more
    """

    files: Sequence[Path]
    timeout: timedelta = timedelta(seconds=90)
    colour: Colour | None = None
    mode: Literal["fast", "safe"] = "safe"
    size: int = 3
    rules: dict[str, Rule] = attrs.field(factory=dict)
    lambda_: str = ""
    hidden: int = attrs.field(init=False, default=1)


@cache
def whole_schema() -> dict[str, Any]:
    schema = chain_file_schema({"plugin": options_schema(Plugin)})
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def mistakes(text: str) -> list[str]:
    content = {"version": 1} | yaml.safe_load(text)
    found = jsonschema.Draft202012Validator(whole_schema()).iter_errors(content)
    return [each.json_path for each in found]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "agent: {run: claude-agent-acp}",
        "agent: {run: [npx, -y, x], env: {N: 1, T: '${TOKEN}'}, cancel_timeout: 500ms}",
        "proxies: [{use: './a.py:B', with: {any: thing}}]",
        "proxies: [{use: plugin, with: {files: [a], timeout: 1m, size: '${N}', lambda: x}}]",
        "proxies: [{use: plugin, with: {files: [], rules: {a: {pattern: x, inner: []}}}}]",
        "proxies: [{connect: 'wss://a/b', headers: {A: b}, restarts: 3 in 60s}]",
        "limits: {max_message_bytes: 10MB, max_open_requests: 5}",
        "agent: {run: a, sandbox: true}",
        "agent: {run: a, sandbox: {workspaces: {/a: /b}, network: false}}",
        "agent: {run: a, request_timeout: {session/new: 5s}}",
    ],
)
def test_correct_files_are_accepted(text: str) -> None:
    assert mistakes(text) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("version: 2", "$.version"),
        ("agent: {}", "$.agent"),
        ("agents: {}", "$"),
        ("agent: {run: a, use: plugin, with: {files: []}}", "$.agent"),
        ("agent: {run: a b}", "$.agent"),
        ("agent: {run: a, start_timeout: 5}", "$.agent"),
        ("proxies: [{use: plugin, with: {fles: []}}]", "$.proxies[0].with"),
        ("proxies: [{use: plugin, with: {files: [], mode: quick}}]", "$.proxies[0].with.mode"),
        ("proxies: [{use: plugin, with: {files: [], size: many}}]", "$.proxies[0].with.size"),
        ("proxies: [{use: plugni}]", "$.proxies[0].use"),
        ("proxies: [{use: plugin}]", "$.proxies[0]"),  # an option must be given
        ("limits: {max_message_bytes: 10 mb}", "$.limits.max_message_bytes"),
        ("limits: {max_message_bytes: -1}", "$.limits.max_message_bytes"),
    ],
)
def test_mistakes_are_found(text: str, place: str) -> None:
    assert place in mistakes(text)


def test_the_version_must_be_given() -> None:
    without = {"agent": {"run": "a"}}

    assert whole_schema()["required"] == ["version"]
    assert not jsonschema.Draft202012Validator(whole_schema()).is_valid(without)
    assert jsonschema.Draft202012Validator(whole_schema()).is_valid({"version": 1, **without})


def test_options_have_descriptions_and_defaults() -> None:
    options: dict[str, Any] = options_schema(Plugin)["properties"]

    assert list(options) == ["files", "timeout", "colour", "mode", "size", "rules", "lambda"]
    assert options["files"]["description"] == "paths, relative to the session's directory"
    assert options["timeout"]["default"] == "90s"
    assert options["mode"] == {"enum": ["fast", "safe"], "default": "safe"}
    assert options["colour"]["description"] == "one of two; `red`: for stop"
    assert options["lambda"]["description"] == "a Greek letter"
    assert "description" not in options["size"]
    rule = options["rules"]["additionalProperties"]["properties"]
    assert rule["pattern"]["description"] == "Where it applies."
    assert rule["inner"]["items"] == {"type": "object"}


def test_defaults_are_accepted_by_their_own_schema_and_by_the_reader(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(whole_schema())
    found = {}
    for name in ("ComponentItem", "AgentItem", "Limits", "McpStart", "Tls", "SandboxItem"):
        for key, schema in whole_schema()["$defs"][name]["properties"].items():
            if "default" in schema:
                assert validator.evolve(schema=schema).is_valid(schema["default"]), (name, key)
                found[name, key] = schema["default"]
    limits = {key: value for (name, key), value in found.items() if name == "Limits"}
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "agent": {"run": "a"}, "limits": limits}))

    assert found["AgentItem", "cancel_timeout"] == "10s"
    assert limits["max_message_bytes"] == "256MiB"
    assert chainfile.load(str(path)).limits == Limits()


def test_every_key_says_what_it_is() -> None:
    schema = whole_schema()
    described = [schema, *(each for name, each in schema["$defs"].items() if " " not in name)]
    texts = {
        key: schema.get("description", "")
        for each in described
        for key, schema in each["properties"].items()
    }

    assert [key for key, text in texts.items() if not text] == []
    # The reader has a YAML file, which has no `None`.
    assert [key for key, text in texts.items() if "None" in text] == []


def test_a_class_without_options_accepts_none() -> None:
    assert options_schema(object) == {"type": "object", "additionalProperties": False}


def test_an_annotation_that_cannot_be_resolved_is_reported() -> None:
    cls = attrs.make_class("Odd", {"x": attrs.field(type="Missing")})  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"Odd\.x: the annotation 'Missing' cannot be resolved"):
        options_schema(cls)
