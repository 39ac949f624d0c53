"""`acp-conductor login FILE [METHOD]`: the methods of the agent of a chain, or one performed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import attrs
import click
import msgspec
import trio

from conductor.chain.login_methods import variables
from conductor.chainfile.model import ChainFile
from conductor.cli.agent_alone import run_agent_alone
from conductor.cli.arguments import CHAIN_PATH
from conductor.cli.command_group import log_for_people
from conductor.cli.load import read_chain
from conductor.cli.login_help import AUTH_CAPABILITY, offered_methods
from conductor.cli.prompt.display import one_line
from conductor.cli.trial import Trial, prepare_process
from conductor.client.acp_client import Client
from conductor.client.embedding import AttachedClient
from conductor.errors import ConnectionClosed, RemoteProtocolError, RequestError
from conductor.transport.process_tree import kill_descendants

__all__ = ["command"]

_REFUSED, _USAGE, _NOT_STARTED = 1, 2, 3
_WHOLE_COMMAND: Final = "terminal-auth"
"""Member of `_meta`, of clients and of methods, for logins with a command of their own."""
_CAPABILITIES: Final = {"auth": AUTH_CAPABILITY, "_meta": {_WHOLE_COMMAND: True}}


@click.command("login")
@click.argument("file", type=CHAIN_PATH)
@click.argument("method", required=False)
@click.pass_context
def command(ctx: click.Context, /, file: str, method: str | None) -> None:
    """Log in to the agent of the chain of FILE, with one of the methods that it offers.

    Without METHOD, they are listed. The proxies of the chain are not started. A method in a
    terminal runs the agent's own program in this one, as the chain would start it: with its
    environment, working directory, sandbox or ssh. Any other is performed by the agent, which may
    open a browser; an agent that keeps such a login in its process only has to be asked again by
    the editor.

    Exit codes: 0 logged in, 1 refused, 2 wrong usage or chain file, 3 the agent did not start; of
    a method in a terminal, that of the agent's program.

    \b
    Examples:
      acp-conductor login review.yaml
      acp-conductor login review.yaml claude-login
    """
    chain = read_chain(file, "agent")
    log_for_people(ctx)
    _log_in(chain, method)


@attrs.define
class _Login:
    """A login to an agent; `terminal` is the method to perform when its trial has ended."""

    trial: Trial
    wanted: str | None
    terminal: Mapping[str, Any] | None = None

    async def run(self) -> None:
        trial = self.trial
        async with trial.running() as attached:
            with trial.failing():
                trial.code = await self._log_in(attached)
            match trial.error:
                case RequestError() | RemoteProtocolError() as error:
                    _say(f"error: {one_line(str(error))}")
                    for line in _details(error):
                        _say(f"  {one_line(line)}")
                case ConnectionClosed():
                    _say("error: the agent ended without an answer")

    async def _log_in(self, attached: AttachedClient[Client]) -> int:
        if not await self.trial.start(attached, _CAPABILITIES):
            return _NOT_STARTED
        self.trial.code, client = _REFUSED, attached.client
        methods = {method["id"]: method for method in offered_methods(self.trial.answer)}
        if self.wanted is None:
            _list(methods)
            return 0
        if self.wanted not in methods:
            names = ", ".join(methods) or "none"
            _say(f"error: the agent offers no method {self.wanted!r}; it offers: {one_line(names)}")
            return _USAGE
        method = methods[self.wanted]
        if _is_in_terminal(method):
            self.terminal = method
            return 0
        if missing := self._missing_variables(method):
            _say(
                f"error: set {', '.join(missing)} in `env:` of the agent, in {self.trial.file.path}"
            )
            if link := method.get("link"):
                _say(f"  see {one_line(str(link))}")
            return _REFUSED
        request = "authenticate" if client.protocol_version == 1 else "auth/login"
        await client.request(request, {"methodId": self.wanted})
        _say("logged in")
        return 0

    def _missing_variables(self, method: Mapping[str, Any]) -> list[str]:
        """Variables of a method of type `env_var` that the agent does not have."""
        listed = method.get("vars") if method.get("type") == "env_var" else None
        found = [each for each in listed if isinstance(each, dict)] if listed else []
        required = [each.get("name") for each in found if each.get("optional") is not True]
        environment = self.trial.file.flat()[-1].environment(os.environ)
        return [name for name in required if isinstance(name, str) and name not in environment]


def _log_in(file: ChainFile, wanted: str | None) -> NoReturn:
    """Perform a method, or list them, and exit."""
    trial = Trial(msgspec.structs.replace(file, proxies=(), agent=file.flat()[-1]))
    login = _Login(trial, wanted)
    prepare_process()
    try:
        trio.run(login.run)
    finally:
        kill_descendants()
    if login.terminal is None or trial.signals:
        trial.leave()
    if login.terminal.get("type") != "terminal":
        run_agent_alone(file.flat(), (), {}, command=_whole_command(login.terminal))
    args = login.terminal.get("args")
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    run_agent_alone(file.flat(), words, variables(login.terminal.get("env")))


def _details(exc: RequestError | RemoteProtocolError) -> list[str]:
    """Lines of `data.details`, which is where agents say why an internal error happened."""
    data = exc.data if isinstance(exc, RequestError) else None
    details = data.get("details") if isinstance(data, Mapping) else data
    return details.splitlines() if isinstance(details, str) else []


def _is_in_terminal(method: Mapping[str, Any]) -> bool:
    return method.get("type") == "terminal" or _whole_command(method) is not None


def _whole_command(method: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The command of a method of an agent that does not use the type `terminal`."""
    meta = method.get("_meta")
    told = meta.get(_WHOLE_COMMAND) if isinstance(meta, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(told.get("command"), str):
        return None
    args = told.get("args")
    words = [each for each in args if isinstance(each, str)] if isinstance(args, list) else []
    return (told["command"], *words)


def _list(methods: Mapping[str, Mapping[str, Any]]) -> None:
    if not methods:
        print(
            "the agent offers no method: log in with its own program, or give it its key in `env:`"
        )
    for id, method in methods.items():
        name, about = method.get("name") or id, method.get("description")
        where = ", in this terminal" if _is_in_terminal(method) else ""
        print(one_line(f"{id}: {name}{where}{f' ({about})' if about else ''}"), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
