"""`acp-conductor ps`"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

__all__ = ["command"]

_INTERVAL: Final = 1.0
_HEAD: Final = (
    *("PID", "CHAIN", "CLIENT", "AGENT", "SESSIONS", "TURN", "RESTARTS", "MEMORY", "UP", "STATE"),
)
_TO_START: Final = "\x1b[H\x1b[2J"


@click.command("ps")
@click.option("--follow", "-f", is_flag=True, help="Show changes every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per conductor.")
def command(*, follow: bool, as_json: bool) -> None:
    """List the running conductors of this user, one line per chain.

    TURN is the time since the oldest running turn began; MEMORY that of the conductor and of its
    components' processes. A server has a line for each client. A conductor that does not answer
    within a second has "no answer"; with --json, "error". --json also has the processes of
    plugins. Sockets and temporary directories that a killed conductor left are removed.

    \b
    Examples:
      acp-conductor ps
      acp-conductor ps --json | jq .chains[].components
    """
    from conductor.cli.terminal_text import printable
    from conductor.control.client import remove_stale_directories

    for path in remove_stale_directories():
        click.echo(f"removed {printable(path)}, which a killed conductor left", err=True)
    shown = None
    try:
        while True:
            text = _text(as_json)
            if sys.stdout.isatty() and follow and not as_json:
                click.echo(_TO_START + text, nl=False)
            elif text != shown:
                click.echo(text, nl=False)
            shown = text
            if not follow:
                return
            time.sleep(_INTERVAL)
    except KeyboardInterrupt:
        sys.exit(130)


def _text(as_json: bool) -> str:
    from conductor.cli.terminal_text import printable, table
    from conductor.control.client import conductors

    found = list(conductors())
    if as_json:
        return "".join(json.dumps(each) + "\n" for each in found)
    rows = [[printable(cell) for cell in row] for each in _shown(found) for row in _rows(each)]
    lines = table(_HEAD, rows, left=4) if rows else ["no conductor of this user runs"]
    return "".join(f"{line}\n" for line in lines)


def _shown(found: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without the processes of plugins, which run no command: their conductor has the line."""
    chains = [chain for each in found for chain in each.get("chains", ())]
    components = {each["pid"] for chain in chains for each in chain["components"]}
    for each in found:
        if "error" in each or each["command"] or each["pid"] not in components:
            yield each


def _rows(status: dict[str, Any]) -> Iterator[Sequence[str]]:
    from conductor.cli.units import shown_duration, shown_size

    if "error" in status:
        yield (str(status["pid"]), *["-"] * (len(_HEAD) - 2), "no answer")
        return
    memory = shown_size(status["memory"] + status["memory_of_components"])
    up = shown_duration(time.time() - status["started"])
    for number, chain in enumerate(status["chains"]):
        turns = [turn["seconds"] for turn in chain["turns"]]
        restarts = sum(each["restarts"] for each in chain["components"])
        yield (
            str(status["pid"]),
            chain["name"],
            chain["client"] or chain["client_label"] or "-",
            chain["agent"] or "-",
            str(len(chain["sessions"])),
            shown_duration(max(turns)) if turns else "-",
            str(restarts),
            memory if number == 0 else "",
            up if number == 0 else "",
            _state(chain["components"]),
        )
    if not status["chains"]:
        yield (
            str(status["pid"]),
            status["command"],
            "-",
            "-",
            "0",
            "-",
            "0",
            memory,
            up,
            "no client",
        )


def _state(components: Sequence[dict[str, Any]]) -> str:
    """The components that do not run, with their states."""
    others = [
        f"{each['name']} {each['state']}" for each in components if each["state"] != "running"
    ]
    return ", ".join(others) if others else "running"
