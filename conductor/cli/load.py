"""Load chain files for a command, as they are or as in a session of `run`; diagnostics go to
stderr, with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from conductor.chainfile import ChainFile, Diagnostic, SourceLocation, load
from conductor.chainfile.diagnostics import closest_match
from conductor.errors import ChainFileError
from conductor.places import PROJECT_FILE, name_of_chain, unknown_name_help
from conductor.secrets.masking import redact, register_environment

if TYPE_CHECKING:
    from conductor.chain.chooser import OtherFiles
    from conductor.chainfile.layers import Layers
    from conductor.chainfile.model import ChainFile

__all__ = [
    "RequiredKind",
    "as_trusted",
    "chain_here",
    "chain_or_exit",
    "check_options",
    "load_chain",
    "missing_chain",
    "print_diagnostics",
    "read_chain",
    "report",
    "similar_file",
    "trusted",
]

RequiredKind: TypeAlias = Literal["agent", "proxies", "either"]


def read_chain(path: str, need: RequiredKind = "either") -> ChainFile:
    """Load a chain file; print its mistakes and exit with 2 if it has any.

    Plugins are not imported.
    """
    try:
        return load_chain(path, need)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def load_chain(
    path: str, need: RequiredKind = "either", *, allow_special_files: bool = False
) -> ChainFile:
    """`read_chain`, but raising `ChainFileError`. `allow_special_files`: see `chainfile.load`."""
    if (mistake := missing_chain(path)) is not None:
        raise ChainFileError([mistake])
    chain = load(path, allow_special_files=allow_special_files)
    if need == "agent" and chain.agent is None:
        message = "this chain has no `agent:`; it can be part of another"
        raise ChainFileError([Diagnostic(SourceLocation.whole(path), message)])
    if need == "proxies" and chain.agent is not None:
        message = "a chain of proxies must not have an `agent:`"
        raise ChainFileError(
            [Diagnostic(chain.agent.location or SourceLocation.whole(path), message)]
        )
    return chain


def missing_chain(path: str) -> Diagnostic | None:
    """The mistake, if there is no file at the path, of `named_chain` too; with what could be
    meant."""
    if os.path.lexists(path):
        return None
    message, help = "there is no such file", None
    if (name := name_of_chain(path)) is not None:
        from conductor.plugins.loading import ready_made_help

        message = f"there is no chain called {name!r}"
        help = ready_made_help(name) or unknown_name_help(name)
    elif (help := _similar_file_help(path)) is None:
        return None
    return Diagnostic(SourceLocation.whole(path), message, help=help)


def _similar_file_help(path: str) -> str | None:
    """The chain file beside it with a similar name."""
    try:
        meant = similar_file(path, (".yaml", ".yml"))
    except OSError:
        return f"there is no directory {os.path.dirname(path)} either"
    return None if meant is None else f"did you mean `{meant}`?"


def similar_file(path: str, endings: tuple[str, ...]) -> str | None:
    """Path of the file in the same directory, with one of these endings and a similar name.

    Raises `OSError` if the directory cannot be listed.
    """
    directory, name = os.path.split(path)
    files = [each for each in os.listdir(directory or ".") if each.endswith(endings)]
    meant = closest_match(name, files)
    return None if meant is None else os.path.join(directory, meant)


def as_trusted(chain: ChainFile) -> ChainFile:
    """The chain; that of a project's file as the user trusts it. Exits with 2 if it is not trusted:
    its plugins are not imported."""
    try:
        return trusted(chain)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def trusted(chain: ChainFile) -> ChainFile:
    """`as_trusted`, but raising `ChainFileError`."""
    path = os.path.realpath(chain.path)
    if os.path.basename(path) != PROJECT_FILE:
        return chain
    from conductor.chainfile.layers import trusted_chain
    from conductor.chainfile.project_file import Untrusted

    try:
        return trusted_chain(path, os.environ)
    except Untrusted as exc:
        help = exc.remedy or "`acp-conductor trust` shows what it runs"
        mistake = Diagnostic(SourceLocation.whole(path), f"the file {exc}", help=help)
        raise ChainFileError([mistake]) from exc


def check_options(chain: ChainFile) -> None:
    """Print all problems and exit with 2 if plugins cannot be created with their options, or are of
    a project's file that is not trusted.

    For servers; a chain on stdio reports it when the client initializes it.
    """
    chain = as_trusted(chain)
    if any(spec.use is not None for spec in chain.flat()):
        from conductor.cli.plugin_checks import check_plugins

        diagnostics = [found for found in check_plugins([chain]) if found.severity == "error"]
        if diagnostics:
            report(ChainFileError(diagnostics))
            sys.exit(2)


def report(error: ChainFileError) -> None:
    """Print every diagnostic of a chain file and their number.

    Secrets are masked: a quoted line may contain one that was written out instead of `${TOKEN}`.
    """
    print_diagnostics(error.diagnostics)
    count = len(error.diagnostics)
    print(f"{count} problem{'s' if count != 1 else ''}", file=sys.stderr)


def print_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print diagnostics to stderr with secrets masked."""
    from conductor.cli.terminal_text import printable_lines

    register_environment(os.environ)
    for problem in diagnostics:
        print(printable_lines(redact(str(problem))), end="\n\n", file=sys.stderr)


def chain_here(chain: ChainFile | None, cwd: str, others: OtherFiles) -> ChainFile | None:
    """A chain with what the user's and the project's file add; without one, what they add.

    A chain of proxies, which `run` refuses, stays as it is. Raises `ChainFileError`.
    """
    import msgspec

    from conductor.chainfile.layers import merged

    if chain is not None:
        return _with_layers(chain, cwd, others)[0]
    layers = _layers(cwd, others)
    base = layers.project or layers.user
    if base is None:
        return None
    return merged(msgspec.structs.replace(base, proxies=()), layers.user, layers.project)


def chain_or_exit(
    chain: ChainFile, cwd: str, others: OtherFiles
) -> tuple[ChainFile, tuple[str, ...]]:
    """A chain with what the user's and the project's file add, and a line for each of them.

    A chain of proxies stays as it is. Prints mistakes and exits with 2.
    """
    from conductor.errors import ChainFileError

    try:
        return _with_layers(chain, cwd, others)
    except ChainFileError as exc:
        report(exc)
        sys.exit(2)


def _with_layers(
    chain: ChainFile, cwd: str, others: OtherFiles
) -> tuple[ChainFile, tuple[str, ...]]:
    from conductor.chainfile.layers import merged

    if chain.agent is None:
        return chain, ()
    layers = _layers(cwd, others)
    return merged(chain, layers.user, layers.project), layers.remarks


def _layers(cwd: str, others: OtherFiles) -> Layers:
    from conductor.chainfile.layers import gather_layers

    return gather_layers(cwd, os.environ, user=others.user, project=others.project)
