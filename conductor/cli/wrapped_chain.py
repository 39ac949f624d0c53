"""The chain of `wrap`: the proxies of a chain file or of `--use`, and the agent as a command.

The command replaces the agent of the chain file. The file's settings that guard the agent or limit
its time stay (`Key.wrapped`); those that say what is started and how (`run`, `use`, `env`, `cwd`,
`ssh` and so on) belong to the agent that is replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from conductor.chainfile.keys import declaration, key_names
from conductor.chainfile.model import AgentItem, ChainFile, ComponentSpec
from conductor.chainfile.paths import command_name, untaken_name
from conductor.cli.component_specs import absolute_program
from conductor.errors import ChainFileError, StartError

__all__ = ["chain_of_uses", "load_wrapped_chain", "warn_of_mistakes"]

_PLACES: Final = ("locations", "key_locations", "written", "directory")


def load_wrapped_chain(
    path: str, argv: Sequence[str], *, allow_special_files: bool = True
) -> ChainFile:
    """The chain of a file with this agent. Raises `ChainFileError`."""
    from conductor.cli.load import load_chain

    return _with_agent(load_chain(path, allow_special_files=allow_special_files), argv)


def _with_agent(chain: ChainFile, argv: Sequence[str]) -> ChainFile:
    """The chain with this command as its agent; of a nested chain with an agent, in that chain."""
    old = chain.agent
    if old is not None and old.chain is not None:
        inner = msgspec.structs.replace(old, chain=_with_agent(old.chain, argv))
        return msgspec.structs.replace(chain, agent=inner)
    inherited = (
        name for key, name in key_names(AgentItem).items() if declaration(AgentItem, key).wrapped
    )
    kept = {} if old is None else {name: getattr(old, name) for name in (*inherited, *_PLACES)}
    name = untaken_name(command_name(argv), {proxy.name for proxy in chain.proxies})
    agent = ComponentSpec(name=name, run=absolute_program(argv), **kept)
    return msgspec.structs.replace(chain, agent=agent)


def chain_of_uses(uses: Iterable[str], argv: Sequence[str]) -> ChainFile:
    """A chain of plugins with this agent; each of `uses` is `NAME` or `NAME:{option: value}`.

    Raises `ValueError` with a message for the user.
    """
    specs, taken = map(_plugin, uses), set[str]()
    proxies = [msgspec.structs.replace(s, name=untaken_name(s.name, taken)) for s in specs]
    chain = ChainFile(path="<command line>", name=command_name(argv), proxies=tuple(proxies))
    return _with_agent(chain, argv)


def warn_of_mistakes(
    file: str | None, uses: Sequence[str], argv: Sequence[str]
) -> ChainFile | None:
    """Print the mistakes of the chain file, or of `--use`, as warnings; return the chain.

    For an agent that runs alone, where nothing else would report them: a person who tries the
    command in a terminal sees them, and a login still works. No plugin is imported.
    """
    from conductor.cli.load import print_diagnostics

    chain = None
    try:
        chain = chain_of_uses(uses, argv) if file is None else load_wrapped_chain(file, argv)
        mistakes = [*_unknown_plugins(chain)]
    except ChainFileError as exc:
        print_diagnostics(exc.diagnostics)
        mistakes = ["its chain file has mistakes"]
    except ValueError as exc:
        mistakes = [str(exc)]
    for mistake in mistakes:
        text = f"acp-conductor: {mistake}: with an editor, this chain does not start"
        print(text, file=sys.stderr, flush=True)
    return chain


def _plugin(text: str) -> ComponentSpec:
    use, colon, options = text.partition(":{")
    if not colon:
        use, colon, options = text.partition(": {")
    use = use.strip()
    if not use:
        raise ValueError(f"--use {text!r} names no proxy; expected NAME or NAME:{{option: value}}")
    file, separator, cls = use.rpartition(".py:")
    if separator:
        use = f"{os.path.abspath(os.path.expanduser(f'{file}.py'))}:{cls}"
    spec = ComponentSpec(name=use.rpartition(":")[2].replace("/", "-"), use=use)
    return spec if not colon else _with_options(spec, "{" + options)


def _with_options(spec: ComponentSpec, text: str) -> ComponentSpec:
    """`text` is a YAML flow mapping, so JSON is accepted, too; `${VAR}` as in a chain file."""
    from conductor.chainfile.diagnostics import SourceText
    from conductor.chainfile.document import read_document

    try:
        document = read_document(SourceText(f"--use {spec.name}", text), os.environ)
        if document.diagnostics:
            raise ChainFileError(document.diagnostics)
    except ChainFileError as exc:
        raise ValueError("\n".join(map(str, exc.diagnostics))) from exc
    return msgspec.structs.replace(
        spec,
        options=document.data,
        locations={("with", *path): place for path, place in document.locations.items()},
        key_locations={("with", *path): place for path, place in document.keys.items()},
        written={("with", *path): value for path, value in document.written.items()},
    )


def _unknown_plugins(chain: ChainFile) -> Iterator[str]:
    from conductor.plugins.loading import check_name

    for spec in chain.flat():
        if spec.use is not None:
            try:
                check_name(spec)
            except StartError as exc:
                yield exc.reason
