"""`acp-conductor schema`"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import click
import msgspec

__all__ = ["command"]


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of chain files, for completion in an editor.

    It has the options of the installed components; run it again after an installation. In editors
    with the YAML language server, a comment in a chain file names it:
    `# yaml-language-server: $schema=PATH`.

    \b
    Examples:
      acp-conductor schema > ~/.config/acp-conductor/chain.schema.json
    """
    from conductor.chainfile.json_schema import chain_file_schema
    from conductor.chainfile.model import START_TIMEOUT
    from conductor.cli.plugin_process import ask_each
    from conductor.plugins.loading import entry_points

    options: dict[str, dict[str, Any]] = {}
    failed = False
    questions = {name: name for name in sorted(entry_points())}
    for name, schema, error in ask_each(
        "conductor.cli.schema", questions, dict[str, Any], START_TIMEOUT
    ):
        if error:
            failed = True
            print(error, file=sys.stderr)
        options[name] = schema or {}  # without a schema, any options are accepted
    print(msgspec.json.format(msgspec.json.encode(chain_file_schema(options)), indent=2).decode())
    sys.exit(1 if failed else 0)


_Answer: TypeAlias = tuple[dict[str, Any], str]
"""The schema of a component's options, and the error if there is none."""


def _describe(question: bytes) -> bytes:
    from conductor.chainfile.json_schema import options_schema
    from conductor.chainfile.model import ComponentSpec
    from conductor.errors import StartError
    from conductor.plugins.loading import load_class

    name = msgspec.json.decode(question, type=str)
    answer: _Answer
    try:
        answer = options_schema(load_class(ComponentSpec(name=name, use=name))), ""
    except (StartError, TypeError) as exc:
        answer = {}, f"{name}: {exc}"
    return msgspec.json.encode(answer)


if __name__ == "__main__":
    from conductor.cli.plugin_process import answer_questions

    answer_questions(_describe)
