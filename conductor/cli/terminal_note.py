"""Note of `run` for a person who starts it in a terminal."""

from __future__ import annotations

import os
import sys

from conductor.chainfile.model import ChainFile

__all__ = ["note_for_terminals"]


def note_for_terminals(chain: ChainFile) -> None:
    """Say on stderr that an editor is awaited, if stdin and stderr are a terminal."""
    if chain.agent is None or not (os.isatty(0) and os.isatty(2)):
        return
    import shlex

    print(
        "note: this waits for the messages of an editor; to ask the agent in a terminal, press "
        f"Ctrl-C and run `acp-conductor prompt {shlex.quote(chain.path)} TEXT`",
        file=sys.stderr,
        flush=True,
    )
