"""A chain that failed to start, explained to the user: the agent in its place, and its texts. Pure.

If `initialize` is answered with an error, editors show "failed to initialize" without the reason.
They show the messages of `StartFailureAgent` like those of any agent. It supports both protocol
versions, and of each only the mandatory part. Its answer to each prompt is Markdown: the error,
remedies, and the next step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from conductor import __version__
from conductor.acp import asks_for_history, session_id_of
from conductor.adapters.negotiated import announced_by_client
from conductor.jsonrpc.in_flight import InFlightRequest
from conductor.jsonrpc.json_object import decoded_members
from conductor.jsonrpc.messages import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Payload,
    encode_error,
    encode_lossy,
    error_to_exception,
    truncate,
)
from conductor.routing.port import Port

__all__ = [
    "CHAIN_RUNS_TEXT",
    "REMEDIES",
    "RESTART_HINT",
    "FailureContext",
    "StartFailureAgent",
    "remedies",
    "restart_needed",
]

_numbers: Final = count(1)
"""Numbers in ids: unique, as a client may have several chains that did not start."""


class StartFailureAgent:
    """Answers requests in place of the chain; `text` is its answer to each prompt."""

    def __init__(self, client: Port, initialize: Payload | None) -> None:
        self.version: int = 2 if announced_by_client(initialize).version >= 2 else 1
        self.text = ""
        self.sessions: set[str] = set()
        """Ids of its open sessions."""
        self._client = client

    @property
    def initialize_result(self) -> bytes:
        info = {"name": "acp-conductor", "title": "acp-conductor", "version": __version__}
        if self.version == 2:
            capabilities: dict[str, Any] = {"session": {}}
            return encode_lossy({"protocolVersion": 2, "info": info, "capabilities": capabilities})
        return encode_lossy(
            {
                "protocolVersion": 1,
                "agentInfo": info,
                "agentCapabilities": {},
                "authMethods": [],
            }
        )

    def open(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        """Open a session, and answer the session set-up."""
        session = None if method in ("session/new", "session/fork") else session_id_of(params)
        result: dict[str, Any] = {}
        if session is None:
            session = result["sessionId"] = f"acp-conductor-{next(_numbers)}"
        elif self.version == 2 and asks_for_history(params):
            self._update(session, {"sessionUpdate": "replay_complete"})
        self.sessions.add(session)
        self._client.respond(call, encode_lossy(result), None)

    def request(self, call: InFlightRequest, method: str, params: Payload | None) -> None:
        session = session_id_of(params)
        if method == "session/prompt" and session in self.sessions:
            self._prompt(call, session, params)
        elif method in ("session/close", "session/delete") and session in self.sessions:
            self.sessions.discard(session)
            self._client.respond(call, b"{}", None)
        elif method == "session/list":
            self._client.respond(call, b'{"sessions":[]}', None)
        elif method == "initialize":
            problem = "a connection is initialized only once"
            error = encode_error(INVALID_REQUEST, "Invalid request", problem)
            self._client.respond(call, None, error)
        else:
            self._client.respond(call, None, encode_error(METHOD_NOT_FOUND, self.text, method))

    def _prompt(self, call: InFlightRequest, session: str, params: Payload | None) -> None:
        chunk: dict[str, Any] = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": self.text},
        }
        if self.version == 1:
            self._update(session, chunk)
            self._client.respond(call, b'{"stopReason":"end_turn"}', None)
            return
        number = next(_numbers)
        prompt, reply = f"acp-conductor-p{number}", f"acp-conductor-r{number}"
        content = decoded_members(params).get("prompt") or []
        self._client.respond(call, encode_lossy({"messageId": prompt}), None)
        self._update(
            session, {"sessionUpdate": "user_message", "messageId": prompt, "content": content}
        )
        self._update(session, {"sessionUpdate": "state_update", "state": "running"})
        self._update(session, {**chunk, "messageId": reply})
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
        self._update(session, idle)

    def _update(self, session: str, update: Mapping[str, Any]) -> None:
        params = encode_lossy({"sessionId": session, "update": update})
        self._client.notify("session/update", params)


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
    "`env: {LD_LIBRARY_PATH: null}` for the component keeps them out."
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

    def describe(self, error: bytes, component: str | None = None, client: str = "") -> str:
        """Markdown text for the user: what is wrong and what to do.

        `error` is the wire error of the failed start, `component` the component that answered
        `initialize` with it, if one did; `client` is the client's name.
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
                *(_NEW_ARGUMENTS if "usage" in data else _retry_hint(self.file)),
                _log_hint(self.log, client),
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
