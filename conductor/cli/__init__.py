"""The command `acp-conductor`.

One module per command, with the click command as `command`, imported when it is used; the list is
in `command_group.py`. `early_spawn.py` starts the components of `run`, `agent` and `wrap` before
click and trio are imported; `stdio_chain.py` serves a chain on stdin and stdout; `usage_errors.py`
reports wrong arguments; `check_*` and `prompt_*` belong to the commands `check` and `prompt`.

The top floor: may import every other package.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of the console script."""
    if len(sys.argv) > 2 and sys.argv[1] in ("agent", "run", "wrap", "proxy"):
        # Imports create many objects and no garbage: collecting takes 9 ms of a start.
        # `serve_chain` enables the collector when everything is imported.
        gc.disable()
        from conductor.cli.early_spawn import serve_early

        serve_early(sys.argv[1:])
    from conductor.cli.command_group import run_command

    run_command(sys.argv[1:])
