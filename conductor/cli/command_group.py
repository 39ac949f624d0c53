"""The command group: global options, logging and error reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from conductor import __version__
from conductor.chain.login_words import split_login
from conductor.cli.lazy_group import LazyGroup
from conductor.log import FORMATS, LEVELS, configure, is_json

__all__ = ["acp_conductor", "run_command"]

_SECTIONS: Final = {
    "Serve a chain": {
        "run": "Serve the chain of a chain file to the editor that started this.",
        "agent": "Serve a chain given as commands: proxies, then the agent.",
        "wrap": "Put a chain in front of an agent's command.",
        "proxy": "Serve a chain of proxies to another conductor.",
        "serve": "Start a chain for each remote client: WebSocket, HTTP, Unix socket.",
        "connect": "Serve a remote agent to the editor that started this.",
    },
    "Use a chain in the terminal": {
        "prompt": "Send prompts through a chain and print the answers.",
        "login": "Log in to the agent of a chain; without a method, list those that it offers.",
    },
    "When something goes wrong": {
        "doctor": "Find out what is wrong here, or with a chain, and what to do.",
    },
    "Chain files": {
        "check": "Report every mistake in chain files; with --start, start them.",
        "show": "Show the components of a chain file in order.",
        "components": "List the names for `use:`, with their options.",
        "schema": "Print the JSON Schema of chain files, for completion in an editor.",
    },
    "Editors and projects": {
        "install": "Put a chain into the configuration of an editor.",
        "uninstall": "Take it out again.",
        "trust": "Use the chain file of a project, after a look at what it runs.",
        "untrust": "No longer use it.",
    },
    "Agents by name": {
        "lock": "Pin and install the agents that a chain file names from the registry.",
        "update": "Pin the newest versions of these agents.",
        "registry": "List, show and refresh the registry of agents.",
    },
    "Write a proxy": {
        "new": "Write a package for a new proxy.",
        "try": "Run a proxy before the test agent and show what it does with each message.",
    },
    "Shell": {
        "completions": "Print a script that completes commands in bash, zsh or fish.",
    },
    "What runs, what happened": {
        "ps": "List the running conductors of this user: chains, sessions, turns, memory.",
        "trace": "Look at trace files: messages, their way through the chain, durations.",
    },
}
"""The commands with their lines in `--help`, which does not import them; the sections are the rows
of the README's table."""
_COMMANDS: Final = {name: line for each in _SECTIONS.values() for name, line in each.items()}
_MODULES: Final = {
    "agent": "run:agent_command",
    "check": "check.command",
    "doctor": "doctor.command",
    "install": "install.command",
    "prompt": "prompt.command",
    "proxy": "run:proxy_command",
    "trace": "trace.command",
    "try": "try_proxy.command",
    "uninstall": "install.command:uninstall_command",
    "untrust": "trust:untrust_command",
    "update": "lock:update_command",
}
"""Modules with another name than their command."""
_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C; 1 is that of a difference or a failure."""


@click.group(
    cls=LazyGroup,
    summaries=_COMMANDS,
    sections=_SECTIONS,
    prefix="conductor.cli.",
    modules=_MODULES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option(
    "--log",
    "level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    envvar="ACP_CONDUCTOR_LOG",
    help="Log level on stderr. Components' stderr is logged as info; by prompt and check only if a "
    "level is given.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    envvar="ACP_CONDUCTOR_LOG_FORMAT",
    help="Text for people, or one JSON object per line. auto: text on a terminal and of prompt, "
    "check and try, else JSON.",
)
def acp_conductor(level: str, log_format: str, **_: Any) -> None:
    """Extend any coding agent from any editor.

    An editor starts acp-conductor instead of the agent; it starts a chain of proxies and the agent,
    and carries the Agent Client Protocol between them.

    \b
    Examples:
      acp-conductor prompt chains/hello.yaml "say hello"
      acp-conductor run review.yaml
      acp-conductor agent "uvx my-proxy" "claude-agent-acp"
    """
    configure(level, as_json=is_json(log_format))


def run_command(arguments: Sequence[str]) -> NoReturn:
    """Run a command line, and exit."""
    arguments, login = split_login(arguments)
    try:
        code = acp_conductor.main(
            list(arguments), prog_name="acp-conductor", standalone_mode=False, obj=login
        )
    except click.UsageError as exc:
        from conductor.cli.usage_errors import fail_usage

        fail_usage(exc, arguments, list(_COMMANDS))
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except click.Abort as exc:
        if isinstance(exc.__context__, KeyboardInterrupt):
            sys.exit(_INTERRUPTED)
        click.echo("Aborted!", file=sys.stderr)
        sys.exit(1)
    except BaseExceptionGroup as group:  # of trio
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        sys.exit(_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
