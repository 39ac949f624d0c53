"""Reference pages of the site, made from the code."""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import command_tree

ROOT = Path(__file__).parent.parent
_LEVELS = {
    **{name: name for name in ("info", "warning", "error")},
    "reported_error": "error",
    "lifecycle": "info",
}


def commands() -> str:
    """Every command with its options."""
    lines = ["# Commands", ""]
    for command, context, level in command_tree.commands():
        if level:
            lines += [f"{'#' * (level + 1)} {context.info_name}", ""]
        lines += _command(command, context)
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from ("```text", command_tree.usage(command, context), "```", "")
    for is_example, lines in command_tree.paragraphs(command):
        text = "\n".join(lines)
        yield from ("```sh", textwrap.dedent(text), "```", "") if is_example else (text, "")
    if options := command_tree.options(command, context):
        yield from ("| option | |", "|---|---|")
        yield from (f"| {_code(name)} | {_cell(text)} |" for name, text in options)
        yield ""


def chain_file() -> str:
    """The keys of chain files, from the JSON Schema."""
    schema = json.loads((ROOT / "docs" / "chain.schema.json").read_text())
    lines = [
        "# Keys of chain files",
        "",
        "`acp-conductor schema` prints them as a JSON Schema. In every text `${VAR}` is replaced by"
        " a variable of the environment, `${VAR:-text}` by a text if it is not set.",
        "",
        *_keys("The file", schema),
    ]
    titles = {
        "ComponentItem": "An item of `proxies:`",
        "AgentItem": "`agent:`",
        "SandboxItem": "`sandbox:`",
        "TlsItem": "`tls:`",
        "LimitsItem": "`limits:`",
        "McpItem": "`mcp:`",
    }
    for name, title in titles.items():
        lines += _keys(title, schema["$defs"][name])
    return "\n".join(lines)


def _keys(title: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "", "| key | default | |", "|---|---|---|")
    for key, value in schema["properties"].items():
        default = _code(json.dumps(value["default"])) if "default" in value else ""
        yield f"| {_code(key)} | {default} | {_cell(value.get('description', ''))} |"
    yield ""


def components() -> str:
    """The ready-made components with their options, from the JSON Schema."""
    schema = json.loads((ROOT / "docs" / "chain.schema.json").read_text())
    lines = ["# Ready-made components", "", "[proxies.md](../proxies.md) has examples.", ""]
    for name, options in schema["$defs"].items():
        if name.startswith("with "):
            title = name.removeprefix("with ")
            lines += [f"## {title}", "", options.get("description", ""), ""]
            if options["properties"]:
                lines += list(_keys("", options))[2:]
    return "\n".join(lines)


def log_events() -> str:
    """The events of the log, from the calls in the code."""
    rows = set()
    for package in ("conductor", "proxies", "bridges"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (found := _log_call(node)) is not None:
                    rows.add((*found, path.relative_to(ROOT).as_posix()))
    return "\n".join(
        [
            "# Log events",
            "",
            "Every line of the log has one of these events; values are fields. With `--log-format"
            " json` the event is the member `event`.",
            "",
            "| event | level | fields | logged by |",
            "|---|---|---|---|",
            *(
                f"| {_cell(event)} | {level} | {_cell(fields)} | `{path}` |"
                for event, level, fields, path in sorted(rows)
            ),
            "",
        ]
    )


def _log_call(node: ast.AST) -> tuple[str, str, str] | None:
    """Event, level and fields of a call such as `log.info("event", field=1)`."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=owner, attr=level),
            args=[ast.Constant(str(event)), *_],
            keywords=keywords,
        ) if level in _LEVELS and "log" in ast.unparse(owner):
            fields = sorted(f"`{each.arg}`" for each in keywords if each.arg)
            return event, _LEVELS[level], " ".join(fields)
    return None


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
