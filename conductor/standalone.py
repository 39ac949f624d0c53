"""Run one plugin as a program: a chain that consists of this plugin, on stdin and stdout.

As a module (`python -m`) it is the process of an isolated plugin (`isolate: true`). As a
stand-alone program (`run(MyProxy)`) any conductor can start it; options come as a JSON object in
the environment variable ACP_PROXY_OPTIONS, which is erased before any process is started, and as
`--name value` arguments, which take precedence and are visible to other users. The value of a list
or a mapping is JSON: `--names '["a", "b"]'`.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

import attrs

from conductor.chainfile import ComponentSpec
from conductor.errors import ComponentExited, StartError, withhold_details
from conductor.limits import Limits
from conductor.log import configure
from conductor.plugins.loading import instantiate, option_of_argument
from conductor.proxy.base import Agent, Plugin
from conductor.routing.component import Component
from conductor.secrets.masking import take_secret
from conductor.transport.inherited_stdio import prefetched_stdin

__all__ = ["run_isolated", "run_plugin"]

_VARIABLE = "ACP_PROXY_OPTIONS"
_LOG_LEVEL = "info"
"""Includes the stderr of second agents (`Plugin.open_agent`), which then reaches the log of the
conductor, as all stderr of this process."""


def run_plugin(cls: type[Plugin]) -> NoReturn:
    """Serve `cls` on stdio until stdin reaches EOF, then exit. Exit status 2 for wrong options."""
    from conductor.chain.build import bridge_component, open_agent_chain
    from conductor.chain.components import ChainSpec
    from conductor.chain.stdio_server import serve_stdio
    from conductor.plugins.plugin_component import PluginComponent

    configure(_LOG_LEVEL, lifecycle=False)
    name, arguments = cls.__name__, sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(_usage(cls))
        sys.exit(0)
    try:
        spec = ComponentSpec(
            name=name,
            use=name,
            options=_options(arguments, cls),
        )
        made = [instantiate(spec, cls)]
    except (StartError, ValueError) as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    role: Any = "agent" if issubclass(cls, Agent) else "proxy"

    def make() -> Sequence[Component]:
        """Return the component, with a new instance for each attempt to initialize."""
        plugin = made.pop() if made else instantiate(spec, cls)
        return [PluginComponent(name, plugin, role, agent_chain_opener=open_agent_chain)]

    make_bridge = partial(bridge_component, "auto", Limits()) if role == "proxy" else None
    serve_stdio(ChainSpec(make, role, make_bridge=make_bridge))


def _options(arguments: list[str], cls: type[Plugin]) -> dict[str, Any]:
    try:
        options: Any = json.loads(take_secret(_VARIABLE) or "{}")
    except ValueError as exc:
        raise ValueError(f"{_VARIABLE} is not a JSON object: {exc}") from exc
    if not isinstance(options, dict):
        raise ValueError(f"{_VARIABLE} is not a JSON object")
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise ValueError(f"unexpected argument {word!r}: options are given as --name value")
        name, equals, value = word[2:].partition("=")
        key = name.replace("-", "_")
        options[key] = option_of_argument(cls, key, value if equals else next(words, "true"))
    return options


def _usage(cls: type[Plugin]) -> str:
    fields = [field for field in attrs.fields(cls) if field.init] if attrs.has(cls) else []
    lines = [
        f"{os.path.basename(sys.argv[0])}: {inspect.cleandoc(cls.__doc__ or cls.__name__)}",
        "",
    ]
    lines.append("Speaks the Agent Client Protocol on stdin and stdout; a conductor starts it.")
    if fields:
        lines += [
            "",
            f"Options, as --name value or in {_VARIABLE} (a JSON object):",
        ]
    for field in fields:
        needed = " (required)" if field.default is attrs.NOTHING else ""
        kind = getattr(field.type, "__name__", field.type)
        lines.append(f"  --{field.alias.replace('_', '-')} {kind}{needed}")
    return "\n".join(lines)


def run_isolated() -> NoReturn:
    """Serve the isolated plugin that the first line of stdin describes (`plugins.isolation`)."""
    from conductor.chain.build import build_components
    from conductor.chain.components import ChainSpec
    from conductor.chain.stdio_server import serve_stdio
    from conductor.plugins.handler_reporter import ReportingRecorder
    from conductor.plugins.isolation import failure_info, parse_bootstrap_line, plugin_info
    from conductor.plugins.plugin_component import PluginComponent

    configure(_LOG_LEVEL, lifecycle=False)
    line = _read_bootstrap_line()
    if not line:
        sys.exit(0)  # EOF: the parent process has ended
    spec, role, withheld = parse_bootstrap_line(line)
    recorder = ReportingRecorder()

    def make() -> Sequence[Component]:
        components = build_components((spec,), mode=role)
        component = components[0]
        assert isinstance(component, PluginComponent)
        runtime = component.runtime
        runtime.start_soon(runtime.client.notify, *plugin_info(component.plugin))
        runtime.start_soon(recorder.send_reports, runtime.client.notify)

        def lost(error: ComponentExited) -> None:
            """Report the failure to the conductor, which answers the open requests and decides
            whether to restart."""
            component.client_port.neighbour.notify(*failure_info(error.status))
            component.host.component_failed(component, error)

        component.lost = lost
        return components

    with withhold_details() if withheld else nullcontext():
        seconds = spec.stop_timeout
        chain = ChainSpec(make, role, stop_timeout=seconds, is_supervised=True)
        serve_stdio(chain, recorder=recorder)


def _read_bootstrap_line() -> bytes:
    """Read the first line of stdin; bytes after it are passed on to the transport. Empty at EOF."""
    chunks: list[bytes] = []
    while not chunks or b"\n" not in chunks[-1]:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return b""
        chunks.append(chunk)
    line, _, rest = b"".join(chunks).partition(b"\n")
    if rest:
        prefetched_stdin.append(rest)
    return line


if __name__ == "__main__":
    # Imported again under its real name: here this module is `__main__`.
    from conductor.standalone import run_isolated as run_imported

    run_imported()
