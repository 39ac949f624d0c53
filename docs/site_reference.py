"""Reference pages of the site, made from the code."""

from __future__ import annotations

import ast
import json
import re
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
_LOGS = re.compile(rf"log.*\.(?:{'|'.join(_LEVELS)})\(")


def commands() -> str:
    """Every command with its options."""
    lines = ["# All commands and options", ""]
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
    # An argument without a text is in the usage above.
    if options := [each for each in command_tree.options(command, context) if each[1]]:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| {_code(name)} | {_cell(text)} |" for name, text in options)
        yield ""


ITEMS = {
    "ComponentItem": "An item of `proxies:`",
    "AgentItem": "`agent:`",
    "When": "`when:`",
    "SandboxItem": "`sandbox:`",
    "Tls": "`tls:`",
    "McpStart": "`mcp:`",
    "Limits": "`limits:`",
    "AdaptItem": "`adapt:`",
    "AdapterItem": "An item of `adapt:`",
}


def chain_file() -> str:
    """The keys of chain files, from the JSON Schema."""
    schema = read_schema()
    lines = [
        "# Keys of chain files",
        "",
        "`acp-conductor schema` prints them as a JSON Schema, for completion in an editor. In every"
        " text `${VAR}` is replaced by a variable of the environment, `${VAR:-text}` by a text if"
        " it is not set.",
        "",
        "## The file",
        "",
        *_keys(schema),
    ]
    component = schema["$defs"]["ComponentItem"]["properties"]
    for name, title in ITEMS.items():
        item = schema["$defs"][name]
        lines += [f"## {title}", ""]
        if name == "AgentItem":
            lines += ["The keys of an item of `proxies:`, but for `when`, and these:", ""]
            own = {k: v for k, v in item["properties"].items() if component.get(k) != v}
            item = {"properties": own}
        lines += _keys(item)
    return "\n".join(lines)


def components() -> str:
    """The ready-made components with their options, from the JSON Schema."""
    lines = [
        "# Ready-made components",
        "",
        "The options of each, for `with:`. `rules[].path` is the key `path` of each item of"
        " `rules`, `day.cost` the key `cost` of `day`. [proxies.md](../proxies.md) has examples.",
        "",
    ]
    for name, options in read_schema()["$defs"].items():
        if name.startswith("with "):
            title = name.removeprefix("with ")
            lines += [f"## {title}", "", options.get("description", ""), ""]
            lines += _keys(options) if options["properties"] else ["It has no options.", ""]
    return "\n".join(lines)


def read_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((ROOT / "docs" / "chain.schema.json").read_text())
    return schema


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for key, value, is_required in flat_keys("", schema):
        default = "must be given" if is_required else ""
        if "default" in value:
            default = _code(_text(value["default"]))
        described = _cell(value.get("description", ""))
        yield f"| {_code(key)} | {value_words(value)} | {default} | {described} |"
    yield ""


def flat_keys(above: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """The keys of a mapping, and those of the mappings in it that are written in line."""
    for key, value in schema["properties"].items():
        yield above + key, value, key in schema.get("required", ())
        for one in _alternatives(value):
            for suffix, inner in (
                ("", one),
                ("[]", one.get("items")),
                (".*", one.get("additionalProperties")),
            ):
                for each in _alternatives(inner) if isinstance(inner, dict) else ():
                    if "properties" in each:
                        yield from flat_keys(f"{above}{key}{suffix}.", each)


def _alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of a value without null and `${VAR}`."""
    found = [each for one in schema.get("anyOf", ()) for each in _alternatives(one)]
    interpolated = {"type": "string", "pattern": r"\$\{"}
    return [each for each in found or [schema] if each not in ({"type": "null"}, interpolated)]


def value_words(schema: dict[str, Any]) -> str:
    """What one writes: a type in words, or the words to choose from."""
    words = [_one_value(each) for each in _alternatives(schema)]
    return " or ".join(dict.fromkeys(word for word in words if word))


def _one_value(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            title = ITEMS[reference.rpartition("/")[2]]
            anchor = title.replace("`", "").replace(":", "").replace(" ", "-").lower()
            return f"[mapping](#{anchor})"
        case {"enum": list(names), "enumDescriptions": _}:
            return f"one of {len(names)} [names](components.md)"
        case {"enum": list(names)}:
            return ", ".join(_code(_text(name)) for name in names)
        case {"errorMessage": str(message)}:
            return message.removeprefix("expected a ")
        case {"type": "array", "items": inner}:
            return (
                f"list of {value_words(inner).replace('mapping', 'mappings')}" if inner else "list"
            )
        case {"type": "object"}:
            return "mapping"
        case {"type": "boolean"}:
            return "`true`, `false`"
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": _}:
            return "text"
    return ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def log_events() -> str:
    """The events of the log, from the calls in the code."""
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
                for event, level, fields, path in logged_events()
            ),
            "",
        ]
    )


def logged_events() -> list[tuple[str, str, str, str]]:
    """Event, level, fields and file of each call that logs, sorted."""
    found = set()
    for package in ("conductor", "proxies", "bridges"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if _LOGS.search(text) is None:
                continue
            for node in ast.walk(ast.parse(text)):
                if (call := _log_call(node)) is not None:
                    found.add((*call, path.relative_to(ROOT).as_posix()))
    return sorted(found)


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
    return f"`{text}`"


def _cell(text: str) -> str:
    """Text for a table; only what is between backticks is code."""
    words = " ".join(text.split()).replace("|", "\\|")
    parts = words.split("`")
    parts[::2] = [
        part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for part in parts[::2]
    ]
    return "`".join(parts)
