"""Instructions for agents that require authentication.

ACP has two types of methods: those that the agent performs when the client calls `authenticate`,
and type `terminal`, for which the user runs the agent's program with other arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from conductor.chain.login_methods import variables
from conductor.chainfile.model import ChainFile, ComponentSpec
from conductor.error_codes import AUTHENTICATION_REQUIRED
from conductor.errors import RegistryError, RequestError

__all__ = ["AUTH_CAPABILITY", "is_authentication_required", "next_steps", "offered_methods"]

AUTH_CAPABILITY: Final = {"terminal": True}
"""`clientCapabilities.auth`: also offer methods of type `terminal`; the command is printed."""


def is_authentication_required(error: RequestError) -> bool:
    """Whether an error response means that authentication is required."""
    says_so = "authentication required" in f"{error.message} {error.data}".lower()
    return error.code == AUTHENTICATION_REQUIRED or says_so


def offered_methods(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The valid `authMethods` of an `initialize` result, with their `id` also in version 2."""
    methods = answer.get("authMethods")
    found = methods if isinstance(methods, list) else []
    valid = [each for each in found if isinstance(each, Mapping)]
    named = [{**each, "id": each.get("id", each.get("methodId"))} for each in valid]
    return [each for each in named if isinstance(each["id"], str)]


def next_steps(methods: Sequence[Mapping[str, Any]], file: ChainFile) -> list[str]:
    """Lines for the user: the offered methods, and the command for each."""
    if not methods:
        return [
            "the agent offers no way to log in through this client: log in with its own program, "
            "or give it its key in `env:` of the chain file, then try again"
        ]
    lines = ["log in first; the agent offers:"]
    for method in methods:
        about = method.get("description")
        name = str(method.get("name") or method["id"])
        lines.append(f"- {name}: {about}" if about else f"- {name}")
        lines.append(f"run: {_command(method, file)}")
    return lines


def _command(method: Mapping[str, Any], file: ChainFile) -> str:
    is_file, id = file.path.endswith((".yaml", ".yml")), shlex.quote(method["id"])
    chain = shlex.quote(file.path) if is_file else "-- …"
    if method.get("type") != "terminal":
        return f"acp-conductor prompt --authenticate {id} {chain} hello"
    return f"acp-conductor login {chain} {id}" if is_file else _terminal_command(method, file)


def _terminal_command(method: Mapping[str, Any], file: ChainFile) -> str:
    agent = _with_command(file.flat()[-1])
    args, env = method.get("args"), variables(method.get("env"))
    assignments = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    words = [str(word) for word in args] if isinstance(args, list) else []
    command = [*assignments, *map(shlex.quote, [*(agent.run or ("AGENT",)), *words])]
    if agent.ssh is not None:
        return f"ssh -t {shlex.quote(agent.ssh)} {shlex.quote(' '.join(command))}"
    return " ".join(command)


def _with_command(agent: ComponentSpec) -> ComponentSpec:
    """The agent with the command of its registry name, if that is known."""
    if agent.registry is None:
        return agent
    from conductor.registry.resolve import resolved

    with suppress(RegistryError):
        return resolved(agent)
    return agent
