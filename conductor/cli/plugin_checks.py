"""Check plugins in a separate process: for `check`, and for `serve` before it listens.

Each plugin is imported and made with its options within its `start_timeout`. One that ends the
process or takes too long is reported with its location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from conductor.chainfile import Diagnostic, SourceLocation
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.cli.plugin_process import (
    PluginProcess,
    PluginProcessError,
    answer_questions,
    plugin_process,
)
from conductor.errors import StartError, describe
from conductor.plugins.contained import with_contained
from conductor.plugins.isolation import Role, bootstrap_line, parse_bootstrap_line
from conductor.plugins.loading import InvalidOptions, instantiate, load_class_for_role

__all__ = ["check_plugins"]


def check_plugins(chains: Iterable[ChainFile]) -> list[Diagnostic]:
    """Errors and warnings of all plugins that chain files name with `use:`.

    Blocks; Ctrl-C raises `KeyboardInterrupt`. Call it before any other process is started: all
    descendants of this process are killed at the end.
    """
    with plugin_process("conductor.cli.plugin_checks") as process:
        return [
            problem
            for chain in chains
            for spec, role in _plugins(chain)
            for problem in _check(process, spec, role)
        ]


def _check(process: PluginProcess, spec: ComponentSpec, role: Role) -> list[Diagnostic]:
    try:
        answer = process.ask(bootstrap_line(spec, role), spec.start_timeout)
        return msgspec.json.decode(answer, type=list[Diagnostic])
    except PluginProcessError as exc:
        return [_problem(spec, str(exc))]
    except msgspec.MsgspecError:  # a module found the descriptor
        process.kill()
        return [_problem(spec, "it wrote to a file descriptor that is not its own")]


def _plugins(chain: ChainFile) -> Iterator[tuple[ComponentSpec, Role]]:
    """The components with `use:`, nested chains included, with their role."""
    agent = chain.agent
    while agent is not None and agent.chain is not None:
        agent = agent.chain.agent
    components = chain.flat()
    count = len(components) - (agent is not None)
    for index, spec in enumerate(components):
        if spec.use is not None:
            yield spec, "agent" if index == count else "proxy"


def _problem(spec: ComponentSpec, message: str) -> Diagnostic:
    location = spec.locations.get(("use",)) or spec.location or SourceLocation.whole(spec.name)
    return Diagnostic(location, message)


def _diagnose(spec: ComponentSpec, role: Role) -> list[Diagnostic]:
    try:
        plugin = instantiate(spec, load_class_for_role(spec, role))
        contained = with_contained(spec.name, plugin)[1:]
    except InvalidOptions as exc:
        return list(exc.diagnostics)
    except StartError as exc:
        return [_problem(spec, exc.reason)]
    warnings = []
    try:
        for option, text in plugin.option_warnings():
            location = (
                spec.locations.get(("with", option))
                or spec.location
                or SourceLocation.whole(spec.name)
            )
            warnings.append(Diagnostic(location, f"{spec.name}: {text}", severity="warning"))
        for name, proxy in contained:
            for option, text in proxy.option_warnings():
                warning = f"{name}: {option}: {text}"
                warnings.append(
                    msgspec.structs.replace(_problem(spec, warning), severity="warning")
                )
    except BaseException as exc:
        return [_problem(spec, f"option_warnings() failed: {describe(exc)}")]
    return warnings


def _answer(question: bytes) -> bytes:
    spec, role, *_ = parse_bootstrap_line(question)
    return msgspec.json.encode(_diagnose(spec, role))


if __name__ == "__main__":
    answer_questions(_answer)
