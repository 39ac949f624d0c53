"""`acp-conductor install EDITOR`, `uninstall EDITOR`: a chain in the configuration of an editor."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from conductor.chainfile.paths import command_name
from conductor.cli.arguments import CHAIN_PATH, SimilarChoice, complete_component
from conductor.cli.component_specs import absolute_program
from conductor.cli.install.editors import EDITORS, OTHER_NAMES, Editor, find_place
from conductor.cli.install.formats import (
    Launch,
    captured_path,
    is_temporary,
    own_program,
    wrap_words,
)

__all__ = ["command", "uninstall_command"]


@click.command("install", context_settings={"allow_interspersed_args": True})
@click.argument("editor", type=SimilarChoice(EDITORS, OTHER_NAMES), metavar="EDITOR")
@click.argument("agent", nargs=-1, type=click.UNPROCESSED, metavar="[-- AGENT [ARGS]...]")
@click.option("--chain", type=CHAIN_PATH, metavar="FILE", help="A chain file.")
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="NAME[:{OPTION: VALUE}]",
    shell_complete=complete_component,
    help="As for `wrap`.",
)
@click.option(
    "--wrap",
    "wrapped",
    metavar="ENTRY",
    help="Put the chain before an agent that is already in the editor's configuration.",
)
@click.option("--name", help="The agent's name in the editor.  [default: that of the chain]")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="The configuration file, if it is not in its usual place.",
)
@click.option(
    "--path/--no-path",
    "takes_path",
    default=None,
    help="Write the PATH of this shell into the entry.  [default: for editors that are started "
    "from a desktop]",
)
@click.option("--write", is_flag=True, help="Edit the file; without it, print what to insert.")
def command(
    editor: str,
    agent: tuple[str, ...],
    chain: str | None,
    uses: tuple[str, ...],
    wrapped: str | None,
    name: str | None,
    path: Path | None,
    takes_path: bool | None,
    write: bool,
) -> None:
    """Put a chain into the configuration of an editor.

    EDITOR is zed, jetbrains, vscode, codecompanion, avante, agent-shell, acpx, toad or marimo.
    Prints what to insert; with --write, edits the file and keeps a backup; `uninstall` takes the
    entry out again.

    \b
    Examples:
      acp-conductor install zed --chain review.yaml
      acp-conductor install zed --chain review.yaml --write
      acp-conductor install jetbrains --use context --write -- claude-agent-acp
      acp-conductor install acpx --chain review.yaml --wrap gemini --write
    """
    chosen = EDITORS[editor]
    words, default_name = _words(chosen, agent, chain, uses, wrapped)
    program = own_program()
    takes_path = chosen.has_poor_path if takes_path is None else takes_path
    env = {"PATH": captured_path(os.environ)} if takes_path and wrapped is None else {}
    launch = Launch(name or default_name, program, tuple(words), env, wrapped)
    _warn(program, agent)
    if chosen.format is None:
        _show(chosen, launch, chain, write)
        return
    if path is None:
        path = find_place(chosen, os.environ, Path.home(), wrapped or launch.name)
    _install(chosen, path.absolute(), launch, write)


def _words(
    editor: Editor,
    agent: tuple[str, ...],
    chain: str | None,
    uses: tuple[str, ...],
    wrapped: str | None,
) -> tuple[list[str], str]:
    """The words after the program, and the default name. Mistakes are usage errors."""
    if chain is not None and uses:
        raise click.UsageError("--chain and --use exclude each other: write `use:` into the file")
    if wrapped is not None and agent:
        raise click.UsageError("--wrap takes the agent's command from the editor; name only one")
    if wrapped is not None and editor.format is None:
        raise click.UsageError(f"{editor.title} has no file with agents; name the agent after `--`")
    if editor.selects_agent and agent:
        raise click.UsageError(
            f"{editor.title} selects the agent itself: the chain goes before all of its agents, or "
            "before that of --wrap"
        )
    has_agent, name = _chain_facts(chain, uses, agent)
    words = wrap_words(chain, uses)
    if wrapped is not None or editor.selects_agent:
        return words, wrapped or name
    if agent:
        default_name = name if chain is not None else command_name(agent)
        return [*words, *absolute_program(agent)], default_name
    if chain is not None and has_agent:
        return ["run", words[2]], name
    raise click.UsageError(
        "there is no agent: give a --chain with an `agent:`, name a command after `--`, or --wrap "
        "an agent of the editor"
    )


def _chain_facts(
    chain: str | None, uses: tuple[str, ...], agent: tuple[str, ...]
) -> tuple[bool, str]:
    """Whether the chain has an agent, and its name. Reports mistakes and exits with 2."""
    from conductor.cli.load import check_options, read_chain
    from conductor.cli.wrap import chain_of_uses

    if chain is not None:
        read = read_chain(chain)
        check_options(read)
        return read.agent is not None, read.name
    try:
        check_options(chain_of_uses(uses, agent or ("agent",)))
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None
    return False, "acp-conductor"


def _warn(program: tuple[str, ...], agent: tuple[str, ...]) -> None:
    if is_temporary(program):
        _note(f"{program[0]} is in a cache of uv: `uv tool install acp-conductor` is permanent")
    if agent and shutil.which(agent[0]) is None:
        _note(f"{agent[0]} is not in PATH: install it, or write its absolute path")


def _show(editor: Editor, launch: Launch, chain: str | None, write: bool) -> None:
    assert editor.shown is not None
    if "{file}" in editor.shown and launch.words[0] != "run":
        raise click.UsageError(f"{editor.title} needs a --chain with an `agent:`")
    file = shlex.quote(launch.words[1]) if chain is not None else ""
    print(
        editor.shown.format(
            command=shlex.quote(launch.line),
            program=shlex.join(launch.program),
            file=file,
            name=shlex.quote(launch.name),
        )
    )
    _note(editor.then)
    if write:
        sys.exit(1)


def _install(editor: Editor, path: Path, launch: Launch, write: bool) -> None:
    from conductor.cli.install.installation import ConfigFileError, Records, install, preview

    assert editor.format is not None
    try:
        records = Records.load()
        if not write:
            print(preview(path, editor.format, launch, records), end="")
            _note(f"insert this into {path}, or run the command again with --write")
            return
        change, backup = install(editor.name, path, editor.format, launch, records)
    except ConfigFileError as exc:
        print(exc, file=sys.stderr)
        sys.exit(1)
    if change == "unchanged":
        print(f"{path} has this entry already")
    else:
        print(f"{path}: written" + (f"; backup: {backup}" if backup else ""))
    print(f"Next: {editor.then.format(name=launch.wrapped or launch.name)}.")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


@click.command("uninstall")
@click.argument("editor", type=SimilarChoice(EDITORS, OTHER_NAMES), metavar="EDITOR")
@click.option("--name", help="Only this agent.  [default: all that `install` has written]")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="Only this file.  [default: all that `install` has written]",
)
def uninstall_command(editor: str, name: str | None, path: Path | None) -> None:
    """Take the chains out of the configuration of an editor.

    Removes what `install --write` has written for EDITOR; the rest of the file stays. An agent that
    was wrapped gets its command back.

    \b
    Examples:
      acp-conductor uninstall zed
      acp-conductor uninstall zed --name review
    """
    from conductor.cli.install.installation import ConfigFileError, Records, uninstall

    chosen, target = EDITORS[editor], None if path is None else Path(os.path.realpath(path))
    is_found = False
    try:
        records = Records.load()
        for file in records.of(editor, target):
            names = [each for each in file.entries if name in (None, each)]
            if names and chosen.format is not None:
                is_found = True
                change = uninstall(file, names, chosen.format, records)
                removed = f"removed {', '.join(names)}; the rest of the file stays"
                print(f"{file.path}: {'deleted' if change == 'deleted' else removed}")
    except ConfigFileError as exc:
        print(exc, file=sys.stderr)
        sys.exit(1)
    if not is_found:
        what = "nothing" if name is None else f"no agent {name!r}"
        where = "" if path is None else f" to {path}"
        message = f"`install --write` has written {what} for {chosen.title}{where}"
        print(message, file=sys.stderr)
        sys.exit(1)
