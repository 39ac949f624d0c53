"""Check plugins in a separate process: for `check`, and for `serve` before it listens.

Each plugin is imported and made with its options within its `start_timeout`. One that ends the
process or takes too long is reported with its location. Their statements about their places in the
chain are compared here: a chain can run in a wrong order without any error, as `redact` before a
proxy that adds texts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

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
from conductor.json_values import decode_value
from conductor.plugins.isolation import Role, bootstrap_line, parse_bootstrap_line
from conductor.plugins.loading import InvalidOptions, instantiate, load_class_for_role
from conductor.proxy.base import Effect, Placement, Plugin

__all__ = ["PlacedProxy", "check_plugins", "order_warnings"]


class _PluginReport(msgspec.Struct):
    """Results for one component."""

    problems: list[Diagnostic]
    placed: list[PlacedProxy] = []
    """The proxy, and those that it contains."""


def check_plugins(
    chains: Iterable[ChainFile], *, start_timeout: float = math.inf
) -> list[Diagnostic]:
    """Errors and warnings of all plugins that chain files name with `use:`, and of their order.

    `start_timeout`: seconds for each, if its own are more. Blocks; Ctrl-C raises
    `KeyboardInterrupt`. Call it before any other process is started: all descendants of this
    process are killed at the end.
    """
    found: list[Diagnostic] = []
    with plugin_process("conductor.cli.plugin_checks") as process:
        for chain in chains:
            answers = [
                _ask(process, spec, role, min(spec.start_timeout, start_timeout))
                for spec, role in _plugins(chain)
            ]
            found += [problem for answer in answers for problem in answer.problems]
            found += order_warnings([proxy for answer in answers for proxy in answer.placed])
            for spec in _adapters(chain):
                found += _ask(
                    process, spec, "proxy", min(spec.start_timeout, start_timeout)
                ).problems
    return found


def _ask(process: PluginProcess, spec: ComponentSpec, role: Role, seconds: float) -> _PluginReport:
    try:
        answer = process.ask(bootstrap_line(spec, role), seconds)
        return decode_value(answer, type=_PluginReport)
    except PluginProcessError as exc:
        return _PluginReport([_problem(spec, str(exc))])
    except msgspec.MsgspecError:  # a module found the descriptor
        process.kill()
        return _PluginReport([_problem(spec, "it wrote to a file descriptor that is not its own")])


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


def _adapters(chain: ChainFile) -> Iterator[ComponentSpec]:
    """The proxies that `adapt:` gives options, which are inserted at a start, if at all."""
    for name, setting in chain.adapt.items():
        if setting.options and setting.mode != "never":
            yield ComponentSpec(
                name=name, use=name, options=setting.options, location=setting.location
            )


def _problem(spec: ComponentSpec, message: str) -> Diagnostic:
    return Diagnostic(_location(spec), message)


def _location(spec: ComponentSpec) -> SourceLocation:
    return spec.locations.get(("use",)) or spec.location or SourceLocation.whole(spec.name)


def _diagnose(spec: ComponentSpec, role: Role) -> _PluginReport:
    try:
        plugin = instantiate(spec, load_class_for_role(spec, role))
    except InvalidOptions as exc:
        return _PluginReport(list(exc.diagnostics))
    except StartError as exc:
        return _PluginReport([_problem(spec, exc.reason)])
    called = "option_warnings()"
    try:
        warnings = list(_option_warnings(spec, plugin))
        called = "placement()"
        placed = [PlacedProxy(spec.name, _kind(plugin), _location(spec), _placement(plugin))]
    except BaseException as exc:
        return _PluginReport([_problem(spec, f"{called} failed: {describe(exc)}")])
    return _PluginReport(warnings, placed)


def _option_warnings(spec: ComponentSpec, plugin: Plugin) -> Iterator[Diagnostic]:
    for option, text in plugin.option_warnings():
        location = spec.locations.get(("with", option)) or spec.location
        location = location or SourceLocation.whole(spec.name)
        yield Diagnostic(location, f"{spec.name}: {text}", severity="warning")


def _placement(plugin: Plugin) -> Placement:
    """Its placement, with only known effects; none for an agent, or for an option of this name."""
    if not inspect.isfunction(getattr(type(plugin), "placement", None)):
        return Placement()
    given = msgspec.json.encode(plugin.placement())  # type: ignore[attr-defined]
    return decode_value(given, type=Placement)


def _kind(plugin: Plugin) -> str:
    return f"{type(plugin).__module__}.{type(plugin).__qualname__}"


def _answer(question: bytes) -> bytes:
    spec, role, *_ = parse_bootstrap_line(question)
    return msgspec.json.encode(_diagnose(spec, role))


class PlacedProxy(msgspec.Struct, frozen=True):
    """A proxy of a chain, by its place in the list of all."""

    name: str
    kind: str
    """The same for all proxies of one class."""
    location: SourceLocation
    placement: Placement


def order_warnings(chain: Sequence[PlacedProxy]) -> Iterator[Diagnostic]:
    """A warning for each pair in the wrong order; `chain` begins nearest the client.

    A second proxy of the same kind on the right side makes it right.
    """
    for index, source in enumerate(chain):
        before, behind = chain[:index], chain[index + 1 :]
        for proxy, consequence in _misplaced(source, before, behind, "after"):
            yield _order_warning(
                proxy, source, consequence, needed=proxy, place=f"after `{source.name}`"
            )
        for proxy, consequence in _misplaced(source, behind[::-1], before, "before"):
            yield _order_warning(
                source, proxy, consequence, needed=proxy, place=f"before `{source.name}`"
            )


def _misplaced(
    source: PlacedProxy,
    wrong_side: Sequence[PlacedProxy],
    right_side: Sequence[PlacedProxy],
    side: Literal["after", "before"],
) -> Iterator[tuple[PlacedProxy, str]]:
    """Proxies that must be on one side of a source and are only on the other; of each kind, the
    one next to the source, which is the last of `wrong_side`."""
    present = {proxy.kind for proxy in right_side}
    nearest = {proxy.kind: proxy for proxy in wrong_side if proxy.kind not in present}
    for proxy in nearest.values():
        wanted: Mapping[Effect, str] = getattr(proxy.placement, side)
        for effect in sorted(source.placement.effects & wanted.keys()):
            yield proxy, wanted[effect]


def _order_warning(
    first: PlacedProxy, second: PlacedProxy, consequence: str, *, needed: PlacedProxy, place: str
) -> Diagnostic:
    if first.location.path == second.location.path:
        help = f"write `{second.name}` before `{first.name}`"
    else:  # the files are merged in a fixed order
        source = second if needed is first else first
        help = f"add `{needed.name}` {place} in {source.location.path}"
    return Diagnostic(
        second.location,
        f"{second.name}: it stands after `{first.name}`, nearer to the agent: {consequence}",
        note=(first.location, f"`{first.name}` is here"),
        help=help,
        severity="warning",
    )


if __name__ == "__main__":
    answer_questions(_answer)
