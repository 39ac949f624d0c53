"""One plugin as a program of its own: a chain with nothing else in it, on stdin and stdout.

As a module (`python -m`) it is the process of an isolated plugin. As a stand-alone program
(`run(MyProxy)`) it is started by any conductor; its options come as a JSON object in the
environment variable ACP_PROXY_OPTIONS, where no process list shows them, or as `--name value`
arguments, which come first.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import attrs

from conductor.chainfile import Component
from conductor.components.base import Component as Built
from conductor.components.loading import instance_of
from conductor.errors import ComponentExited, StartError, withhold_details
from conductor.proxy.base import Agent, Plugin
from conductor.transport.inherited import first_bytes

__all__ = ["run_isolated", "run_plugin"]

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
        )
        made = [instance_of(spec, cls)]
    except (StartError, ValueError) as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    role: Any = "agent" if issubclass(cls, Agent) else "proxy"

    def make() -> Sequence[Built]:
        """A second attempt to initialize gets an instance of its own."""
        return [PluginComponent(name, made.pop() if made else instance_of(spec, cls), role)]

    serve_stdio(make, mode=role, bridged=False)


def _options(arguments: list[str]) -> dict[str, Any]:
    try:
        # Taken out of the environment: the plugin's children have no business with it.
        options: Any = json.loads(os.environ.pop(_VARIABLE, "{}"))
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


def run_isolated() -> NoReturn:
    """Serve the plugin that the first line of stdin describes (`components.isolation`)."""
    from conductor.components.build import build
    from conductor.components.isolation import about, about_failure, read_spec
    from conductor.components.plugin import PluginComponent
    from conductor.serving import serve_stdio

    line = _first_line()
    if not line:
        sys.exit(0)  # whoever started us is gone
    spec, role, withheld = read_spec(line)

    def make() -> Sequence[Built]:
        (component,) = build((spec,), mode=role)
        assert isinstance(component, PluginComponent)
        component.start_soon(component.client.notify, *about(component.plugin))

        def lost(error: ComponentExited) -> None:
            """The conductor answers what the plugin owed, and says what follows."""
            component.client_side.neighbour.notify(*about_failure(error.status))
            component.host.component_failed(component, error)

        component.lost = lost
        return [component]

    with withhold_details() if withheld else nullcontext():
        seconds = spec.stop_timeout
        serve_stdio(
            make,
            mode=role,
            stop_timeout=seconds,
            bridged=False,
            answers_loss=False,
            watches_turns=False,
        )


def _first_line() -> bytes:
    """What comes behind it is left to the transport."""
    chunks: list[bytes] = []
    while not chunks or b"\n" not in chunks[-1]:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return b""
        chunks.append(chunk)
    line, _, rest = b"".join(chunks).partition(b"\n")
    if rest:
        first_bytes.append(rest)
    return line


if __name__ == "__main__":
    # Under its own name: this module is called `__main__`.
    from conductor.proxy.standalone import run_isolated as run_imported

    run_imported()
