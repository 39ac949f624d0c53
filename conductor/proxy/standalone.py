"""One plugin as a program of its own: a chain with nothing else in it, on stdin and stdout.

Options come as a JSON object in the environment variable ACP_PROXY_OPTIONS, where no process list
shows them, or as `--name value` arguments.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from conductor.chainfile import Component, structure_options
from conductor.errors import ChainFileError
from conductor.proxy.base import Agent, Plugin

__all__ = ["run_plugin"]


def run_plugin(cls: type[Plugin]) -> NoReturn:
    """Serve `cls` on stdio until the client or conductor goes; then exit."""
    from conductor.components.plugin import PluginComponent
    from conductor.serving import serve_stdio

    name = cls.__name__
    try:
        options = _options(sys.argv[1:])
        spec = Component(
            name=name, use=name, options=options, directory=os.environ.get("ACP_PROXY_DIRECTORY")
        )
        structure_options(spec, cls)
    except (ChainFileError, ValueError) as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    is_agent = issubclass(cls, Agent)
    serve_stdio(
        lambda: [
            PluginComponent(name, structure_options(spec, cls), "agent" if is_agent else "proxy")
        ],
        mode="agent" if is_agent else "proxy",
        bridged=False,
    )


def _options(arguments: list[str]) -> dict[str, Any]:
    try:
        options: dict[str, Any] = json.loads(os.environ.get("ACP_PROXY_OPTIONS", "{}"))
    except ValueError as exc:
        raise ValueError(f"ACP_PROXY_OPTIONS is no JSON object: {exc}") from exc
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"unexpected argument {word!r}: options are given as --name value")
        name, equals, value = word[2:].partition("=")
        options[name.replace("-", "_")] = value if equals else next(words, "true")
    return options


if __name__ == "__main__":
    from conductor.components.loading import load_class
    from conductor.errors import StartError

    reference = sys.argv.pop(1)
    try:
        found = load_class(Component(name=reference, use=reference))
    except StartError as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    run_plugin(found)
