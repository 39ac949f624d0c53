"""`acp-conductor wrap [--chain FILE | --use NAME…] -- AGENT ARGS…`

The command replaces the agent of the chain file. The file's settings that guard the agent or limit
its time stay (`Key.wrapped`); those that say what is started and how (`run`, `use`, `env`, `cwd`,
`ssh` and so on) belong to the agent that is replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Literal

import click
import msgspec

from conductor.chainfile.keys import declaration, key_names
from conductor.chainfile.model import AgentItem, ChainFile, ComponentSpec
from conductor.chainfile.paths import command_name, untaken_name
from conductor.cli.agent_alone import client_speaks, run_agent_alone, run_unwrapped
from conductor.cli.arguments import CHAIN_PATH, complete_component, other_files_options
from conductor.cli.component_specs import absolute_program
from conductor.cli.load import load_chain, print_diagnostics
from conductor.cli.trace_options import open_trace, trace_options
from conductor.errors import ChainFileError, StartError
from conductor.transport.inherited_stdio import open_missing_stdio

__all__ = ["chain_of_uses", "command", "load_wrapped_chain", "warn_of_mistakes"]

_PLACES: Final = ("locations", "key_locations", "written", "directory")


@click.command("wrap", context_settings={"allow_interspersed_args": False})
@click.argument(
    "agent", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] AGENT [ARGS]..."
)
@click.option(
    "--chain",
    "file",
    type=CHAIN_PATH,
    metavar="FILE",
    help="A chain file; AGENT replaces its agent.",
)
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="NAME[:{OPTION: VALUE}]",
    shell_complete=complete_component,
    help="A ready-made proxy or FILE.py:CLASS, with options as YAML or JSON. May be repeated; the "
    "first is nearest the editor.",
)
@click.option(
    "--on-start-failure",
    type=click.Choice(["explain", "error"]),
    help="As for `run`.",
)
@other_files_options
@trace_options
def command(
    agent: tuple[str, ...],
    file: str | None,
    uses: tuple[str, ...],
    on_start_failure: Literal["explain", "error"] | None,
    no_project: bool,
    no_user: bool,
) -> None:
    """Put a chain in front of an agent: write this before the command of the agent.

    Arguments, environment and working directory are passed on. In a terminal, and if the input is
    not JSON-RPC, the agent runs alone, in the sandbox that the chain file has for it: so the login
    of an agent works as without the chain.

    \b
    Examples:
      acp-conductor wrap --use context -- claude-agent-acp
      acp-conductor wrap --use 'context:{files: [AGENTS.md]}' -- gemini --acp
      acp-conductor wrap --chain ~/chains/review.yaml -- npx -y some-agent
    """
    if file is not None and uses:
        raise click.UsageError("--chain and --use exclude each other: write `use:` into the file")
    open_missing_stdio()
    if not client_speaks():
        chain = warn_of_mistakes(file, uses, agent)
        if chain is not None and chain.flat()[-1].sandbox is not None:
            run_agent_alone(chain.flat(), (), {})
        run_unwrapped(agent)
    from conductor.chain.chooser import OtherFiles
    from conductor.cli.chain_run import ChainRun, is_pipe

    others = OtherFiles(user=not no_user, project=not no_project)
    if file is not None:
        load = partial(load_wrapped_chain, file, agent, allow_special_files=is_pipe(file))
        run = ChainRun.of_file(file, "agent", on_start_failure, others, load)
    else:
        try:
            run = ChainRun(chain_of_uses(uses, agent), "agent", on_start_failure, others)
        except ValueError as exc:
            raise click.UsageError(str(exc)) from None
    run.serve(open_trace())


def load_wrapped_chain(
    path: str, argv: Sequence[str], *, allow_special_files: bool = True
) -> ChainFile:
    """The chain of a file with this agent. Raises `ChainFileError`."""
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
