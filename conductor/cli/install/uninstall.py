"""`acp-conductor uninstall EDITOR`: take the chain out of an editor's configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from conductor.cli.install.config_file import ConfigFileError
from conductor.cli.install.editors import EDITORS, OTHER_NAMES, Editor
from conductor.cli.similar_choice import SimilarChoice

__all__ = ["command"]

_DONE = {
    "restored": "restored as it was before",
    "removed": "removed {names}; the rest of the file stays",
    "deleted": "deleted",
}


@click.command("uninstall")
@click.argument("editor", type=SimilarChoice(EDITORS, OTHER_NAMES), metavar="EDITOR")
@click.option("--name", help="Only this agent.  [default: all that `install` has written]")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help="Only this file.  [default: all that `install` has written]",
)
def command(editor: str, name: str | None, path: Path | None) -> None:
    """Take the chains out of the configuration of an editor.

    Removes what `install --write` has written for EDITOR. If the file has not been changed since,
    it is restored to the byte; else only the entries are removed. An agent that was wrapped gets
    its command back.

    \b
    Examples:
      acp-conductor uninstall zed
      acp-conductor uninstall zed --name review
    """
    try:
        _uninstall(EDITORS[editor], name, path)
    except ConfigFileError as exc:
        print(exc, file=sys.stderr)
        sys.exit(1)


def _uninstall(editor: Editor, name: str | None, path: Path | None) -> None:
    from conductor.cli.install.installation import uninstall
    from conductor.cli.install.records import Records

    records = Records.load()
    target = None if path is None else Path(os.path.realpath(path))
    is_found = False
    for file in records.of(editor.name, target):
        names = [each for each in file.entries if name in (None, each)]
        if not names:
            continue
        is_found = True
        assert editor.format is not None
        change = uninstall(file, names, editor.format, records)
        print(f"{file.path}: {_DONE[change].format(names=', '.join(names))}")
    if not is_found:
        what = "nothing" if name is None else f"no agent {name!r}"
        raise ConfigFileError(
            f"`install --write` has written {what} for {editor.title}"
            + ("" if path is None else f" to {path}")
        )
