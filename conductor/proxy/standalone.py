"""One plugin as a program of its own: a chain with nothing else in it, on stdin and stdout.

Options come as a JSON object in the environment variable ACP_PROXY_OPTIONS, where no process list
shows them, or as `--name value` arguments, which come first.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Any, NoReturn

import attrs

from conductor.chainfile import Component
from conductor.components.loading import instance_of, load_class
from conductor.errors import ChainFileError, StartError
from conductor.proxy.base import Agent, Plugin

__all__ = ["run_plugin"]

_VARIABLE = "ACP_PROXY_OPTIONS"


def run_plugin(cls: type[Plugin]) -> NoReturn:
    """Serve `cls` on stdio until the client or conductor goes; then exit."""
    from conductor.components.plugin import PluginComponent
    from conductor.serving import serve_stdio

    name, arguments = cls.__name__, sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(_usage(cls))
        sys.exit(0)
    try:
        spec = Component(
            name=name,
            use=name,
            options=_options(arguments),
            directory=os.environ.get("ACP_PROXY_DIRECTORY"),
        )
        instance_of(spec, cls)
    except (ChainFileError, StartError, ValueError) as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    role: Any = "agent" if issubclass(cls, Agent) else "proxy"
    serve_stdio(
        lambda: [PluginComponent(name, instance_of(spec, cls), role)],
        mode=role,
        bridged=False,
    )


def _options(arguments: list[str]) -> dict[str, Any]:
    try:
        options: Any = json.loads(os.environ.get(_VARIABLE, "{}"))
    except ValueError as exc:
        raise ValueError(f"{_VARIABLE} is no JSON object: {exc}") from exc
    if not isinstance(options, dict):
        raise ValueError(f"{_VARIABLE} is no JSON object")
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"unexpected argument {word!r}: options are given as --name value")
        name, equals, value = word[2:].partition("=")
        options[name.replace("-", "_")] = value if equals else next(words, "true")
    return options


def _usage(cls: type[Plugin]) -> str:
    fields = [field for field in attrs.fields(cls) if field.init] if attrs.has(cls) else []
    lines = [f"{os.path.basename(sys.argv[0])}: {inspect.getdoc(cls) or cls.__name__}", ""]
    lines.append("Speaks the Agent Client Protocol on stdin and stdout; a conductor starts it.")
    if fields:
        lines += ["", f"Options, as --name value or in {_VARIABLE} (a JSON object):"]
    for field in fields:
        needed = " (required)" if field.default is attrs.NOTHING else ""
        kind = getattr(field.type, "__name__", field.type)
        lines.append(f"  --{field.alias.replace('_', '-')} {kind}{needed}")
    return "\n".join(lines)


if __name__ == "__main__":
    reference = sys.argv.pop(1)
    try:
        found = load_class(Component(name=reference, use=reference))
    except StartError as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    run_plugin(found)
