"""`acp-conductor try PROXY`"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import click

from conductor.cli.arguments import complete_component

__all__ = ["command"]


@click.command("try")
@click.argument("proxy", shell_complete=complete_component)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="Prompt to send; may be repeated. The test agent runs one command per line (`help` lists "
    "them). The default makes it say a text, call a tool and ask for permission.",
)
@click.option(
    "--with",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the proxy; may be repeated. Lists and mappings are written in JSON.",
)
@click.option(
    "--agent",
    metavar="RECORDING",
    help="Play a recorded agent in place of the test agent: the name of a recording of the "
    "package, or a .jsonl file. The prompts are then those of the recording.",
)
@click.option(
    "--permissions",
    type=click.Choice(["allow", "deny"]),
    default="allow",
    show_default=True,
    help="Response of the client to permission requests and questions.",
)
@click.option(
    "--protocol",
    type=click.Choice(["1", "2"]),
    default="1",
    show_default=True,
    help="Version of the protocol that the client asks for.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a turn may take.",
)
@click.option("--watch", is_flag=True, help="Run again after each change of the proxy's files.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    proxy: str,
    prompts: tuple[str, ...],
    settings: tuple[str, ...],
    agent: str | None,
    permissions: str,
    protocol: str,
    timeout: float,
    watch: bool,
) -> None:
    """Run a proxy before the built-in test agent and show what it does with each message.

    PROXY is a file with one proxy class, notes.py:Notes, package.module:Class, or a name for
    `use:`.

    Exit codes: 0 all turns ended, 1 the proxy raised an exception or a request failed, 2 wrong
    usage, 3 the proxy cannot be loaded or does not start, 130 interrupted.

    \b
    Examples:
      acp-conductor try notes.py
      acp-conductor try notes.py --watch --prompt "/notes" --prompt "say hello"
      acp-conductor try context --with 'files=["AGENTS.md"]' --prompt echo
    """
    from conductor.cli.try_proxy.target import parse_options, recorded_prompts

    try:
        options = parse_options(settings)
        prompts_of_agent = None if agent is None else recorded_prompts(agent)
    except (ValueError, OSError) as exc:
        raise click.UsageError(str(exc)) from exc
    if watch:
        _watch(proxy, [word for word in sys.argv[1:] if word != "--watch"])
    from conductor.cli.command_group import log_for_people
    from conductor.cli.try_proxy.run import DEFAULT_PROMPT, TrySettings, run_once

    log_for_people(ctx)
    run_once(
        proxy,
        TrySettings(
            prompts=prompts or prompts_of_agent or (DEFAULT_PROMPT,),
            recording=agent,
            options=options,
            permissions="allow" if permissions == "allow" else "deny",
            version=int(protocol),
            timeout=timeout,
        ),
    )


_INTERVAL: Final = 0.5
_STOP_TIMEOUT: Final = 5.0


def _watch(target: str, arguments: Sequence[str]) -> NoReturn:
    """Run `acp-conductor` with these arguments until a signal: again, in a new process, after each
    change of the Python files beside that of the proxy, or in the working directory. A run that
    still goes on is ended first."""
    file, is_file, _ = target.rpartition(".py")
    directory = Path(file).parent.absolute() if is_file else Path.cwd()
    command = [sys.executable, "-P", "-m", "conductor", *arguments]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    while True:
        before = _stamps(directory)
        process = subprocess.Popen(command)
        try:
            is_running = True
            while (now := _stamps(directory)) == before:
                if is_running and process.poll() is not None:
                    is_running = False
                    click.echo(f"\n--- waiting for changes in {directory} ---")
                time.sleep(_INTERVAL)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        changed = {name for name, _ in now.items() ^ before.items()}
        click.echo(f"\n--- {', '.join(sorted(changed))} changed ---\n")


def _stamps(directory: Path) -> Mapping[str, tuple[int, int]]:
    """Time of modification and size of the Python files in a directory, by name."""
    stamps = {}
    for path in directory.glob("*.py"):
        with suppress(OSError):  # removed meanwhile
            status = path.stat()
            stamps[path.name] = (status.st_mtime_ns, status.st_size)
    return stamps
