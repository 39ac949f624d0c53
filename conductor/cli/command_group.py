"""The command group: global options, logging and error reports.

A command is imported when it is used, not for `--help` of the group."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from conductor import __version__
from conductor.chain.login_words import split_login
from conductor.log import FORMATS, LEVELS, configure, is_json

__all__ = ["LazyGroup", "acp_conductor", "log_for_people", "run_command"]

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
    "lock": "registry:lock_command",
    "prompt": "prompt.command",
    "proxy": "run:proxy_command",
    "trace": "trace.command",
    "try": "try_proxy.command",
    "uninstall": "install.command:uninstall_command",
    "untrust": "trust:untrust_command",
    "update": "registry:update_command",
}
"""Modules with another name than their command."""
_INTERRUPTED: Final = 130
"""Exit code after Ctrl-C; 1 is that of a difference or a failure."""


class LazyGroup(click.Group):
    """A click group of modules.

    `summaries` are the commands with their lines in `--help`, which has the `sections`. The command
    NAME is the attribute `command` of the module `prefix` + NAME, or what `modules[NAME]` says:
    `MODULE` or `MODULE:ATTRIBUTE`.
    """

    def __init__(
        self,
        *arguments: Any,
        summaries: Mapping[str, str],
        prefix: str,
        modules: Mapping[str, str] | None = None,
        sections: Mapping[str, Mapping[str, str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self._summaries = summaries
        self._prefix = prefix
        self._modules = modules or {}
        self._sections = sections or {"Commands": summaries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._summaries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._summaries:
            return None
        module, _, attribute = self._modules.get(name, name).partition(":")
        found = importlib.import_module(self._prefix + module)
        command: click.Command = getattr(found, attribute or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self._summaries))
        for title, commands in self._sections.items():
            with formatter.section(title):
                rows = [(f"{name:{widest}}", line) for name, line in commands.items()]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args and args[0] not in self._summaries and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._summaries, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            if ctx.parent is None and (meant := _not_a_command(args[0], self._summaries)):
                hint = f" {meant}."
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


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


def log_for_people(ctx: click.Context, *, prints_errors: bool = True) -> None:
    """Log text, unless the user chose JSON; reduce the log, unless the user chose a level.

    A command that does not print the errors of a chain itself leaves out only starts and ends.
    """
    group = ctx.find_root()
    if "log_format" not in group.params:  # the command is run alone
        return
    as_json = group.params["log_format"] == "json"
    is_reduced = group.get_parameter_source("level") is ParameterSource.DEFAULT
    configure(
        group.params["level"],
        as_json=as_json,
        brief=is_reduced and prints_errors,
        lifecycle=not is_reduced,
    )


def _not_a_command(word: str, commands: Iterable[str]) -> str | None:
    """Help for a file, a ready-made proxy, or a command of an agent as the first word; `None` for
    others."""
    import difflib
    import shutil

    from conductor.places import named_chains
    from conductor.plugins.loading import ready_made_help

    if word.endswith((".yaml", ".yml")) or word in named_chains():
        return f"For a chain file: `run {word}` in an editor, or `prompt {word} TEXT` here"
    if word.endswith(".py"):
        return f"For a proxy in Python: `try {word}`"
    if word.endswith(".jsonl"):
        return f"For a trace file: `trace show {word}`"
    if word == "help":
        return "For help: `--help`, also behind a command"
    if (meant := ready_made_help(word)) is not None:
        return meant
    if not difflib.get_close_matches(word, commands) and shutil.which(word):
        return f'For an agent: `wrap -- {word}` in an editor, or `prompt -- "{word}" TEXT` here'
    return None
