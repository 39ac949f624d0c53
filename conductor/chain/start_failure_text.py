"""Markdown texts for the user about a chain that failed to start: error, remedies, next step. Pure.

`start_failure_agent` sends them as the answer to each prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from conductor.jsonrpc.messages import error_to_exception, truncate

__all__ = [
    "CHAIN_RUNS_TEXT",
    "REMEDIES",
    "RESTART_HINT",
    "FailureContext",
    "describe_start_failure",
    "remedies",
    "restart_needed",
]

RESTART_HINT: Final = "Restart the agent in your editor"
CHAIN_RUNS_TEXT: Final = (
    "**acp-conductor: the chain runs now.**\n\nOpen a new session (thread) to use it."
)
"""Answer to prompts of sessions that were opened before the chain ran."""
_LOG_VIEWS: Final = {
    "zed": "in Zed: the command `zed: open log`",
    "jetbrains": 'in a JetBrains IDE: "Get ACP Logs"',
}
"""Place in an editor that shows the stderr of agents, by a part of its client name, lower case."""
REMEDIES: Final = {
    "command not found": "Install the program, or write its absolute path: editors often have a "
    "shorter `PATH` than a shell. `env: {PATH: …}` sets one for the component.",
    "no such file": "Correct the path; a relative one begins at the chain file. That of the chain "
    "file itself begins where the editor starts the agent: make it absolute in the editor's "
    "settings.",
    "ModuleNotFoundError": "Install the module where acp-conductor is installed, whose interpreter "
    f"plugins run with: `{sys.executable} -m pip install …`.",
    "no installed package has": "`acp-conductor components` lists what is installed. A package of "
    f"yours goes where acp-conductor is: `{sys.executable} -m pip install …`. A class in a file "
    "needs no package: `use: ./file.py:Class`.",
    "several installed packages have": "Uninstall one of them, or name the class by its file: "
    "`use: ./file.py:Class`.",
    "not executable": "Make the file executable (`chmod +x`), or name its interpreter in `run:`.",
    "Exec format error": "It is no program of this system. If it is an npm package whose "
    "installation scripts did not run, give the component `install_scripts: yes`; a script needs a "
    "first line that begins with `#!`.",
    "it exited with": "Run the command in a terminal: a program that speaks ACP waits for messages "
    "on stdin. Some need an argument for it, such as `--acp`.",
    "start_timeout": "Run the command in a terminal to see what it waits for, or raise "
    "`start_timeout`.",
    "is it an agent rather than a proxy": "Write it below `agent:`, or name the proxy's command.",
    "is it an agent, and": "Write a proxy below `proxies:`. Some agents need an argument to speak "
    "ACP, such as `--acp`.",
    "is it a program that speaks ACP": "Name a command that speaks ACP on stdin and stdout; some "
    "programs need an argument for it, such as `--acp`.",
    "Authentication required": "Log in with the agent's own program, in a terminal.",
}
"""Remedy by a part of the error's text."""

_LOADER_ERRORS: Final = ("shared librar", "symbol lookup error", "version `GLIBC", "LD_PRELOAD")
_LOADER_REMEDY: Final = (
    "- Editors from Flatpak, Snap or an AppImage pass on the libraries of their package: "
    '`env: {LD_LIBRARY_PATH: ""}` for the component keeps them out.'
)
"""For a program that fails with these texts on stderr."""

_NEW_ARGUMENTS: Final = (
    "- Correct the arguments of `acp-conductor` in your editor's settings, then restart the agent.",
)
"""The arguments of a running process cannot change, so that another attempt would fail too."""
_MAX_CHARS: Final = 50_000
"""Limit for the error text shown: the text of an exception may have any length."""


class FailureContext(msgspec.Struct, frozen=True):
    """Places to mention when a start fails, as paths."""

    file: str | None = None
    """The chain file."""
    log: str | None = None
    """The file that the conductor's stderr is written to, if it is one."""


def describe_start_failure(
    error: bytes,
    *,
    component: str | None = None,
    file: str | None = None,
    log: str | None = None,
    client: str = "",
) -> str:
    """Markdown text for the user: what is wrong and what to do.

    `error` is the wire error of the failed start, `component` the component that answered
    `initialize` with it, if one did. For `file` and `log` see `FailureContext`; `client` is the
    client's name.
    """
    exc = error_to_exception(error)
    data = exc.data if isinstance(exc.data, dict) else {}
    text = exc.message if component is None else f"{component!r} answered: {exc.message}"
    if component is not None and isinstance(exc.data, str):
        text += f" ({exc.data})"
    return "\n".join(
        [
            "**acp-conductor: the chain of this agent did not start.**",
            "",
            *_code_block(truncate(text, _MAX_CHARS)),
            *_details(data),
            "",
            *(f"- {each}" for each in remedies(f"{exc.message} {data.get('reason', '')}")),
            *(_NEW_ARGUMENTS if "usage" in data else _retry_hint(file)),
            _log_hint(log, client),
        ]
    )


def remedies(text_to_match: str) -> list[str]:
    """Remedies that match the error text of a failed start."""
    return [remedy for part, remedy in REMEDIES.items() if part in text_to_match]


def restart_needed(reason: str) -> str:
    """Answer to prompts when the chain could start, but not for this client."""
    return f"**acp-conductor: the chain starts now, but {reason}.**\n\n{RESTART_HINT}."


def _code_block(text: str) -> list[str]:
    """A Markdown code block, in which the carets of excerpts stay aligned."""
    return ["```", *text.replace("```", "'''").splitlines(), "```"]


def _details(data: Mapping[str, Any]) -> Iterator[str]:
    place, command, stderr = data.get("place"), data.get("command"), data.get("stderr")
    if place:
        yield f"- Where: `{place}`"
    if isinstance(command, list) and command:
        yield f"- Command: `{' '.join(map(str, command))}`"
    if isinstance(stderr, list) and stderr:
        yield "- The last lines of its stderr:"
        yield ""
        lines = "\n".join(map(str, stderr))
        yield from _code_block(lines)
        if any(error in lines for error in _LOADER_ERRORS):
            yield _LOADER_REMEDY


def _retry_hint(file: str | None) -> Iterator[str]:
    yield "- When it is fixed, open a new session (thread): the chain is tried again then."
    if file is not None:
        command = f"`acp-conductor check --start {file}`"
        yield f"- In a terminal, in the project's directory, {command} shows more."


def _log_hint(log: str | None, client: str) -> str:
    views = [view for part, view in _LOG_VIEWS.items() if part in client.lower()]
    where = f"the file {log}" if log else next(iter(views), "see your editor's log of agents")
    return f"- The log is what acp-conductor writes to stderr: {where}."
