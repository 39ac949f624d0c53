"""What a chain file says, once it has been read: plain, frozen data.

A chain given on the command line is made of the same classes, without places. No class here shows
an option, an argument or an environment value in its `repr`: they may hold secrets. They are
msgspec's, because to make an attrs class of this size takes 1 ms, at every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from conductor.chainfile.source_location import SourceLocation
from conductor.limits import Limits

__all__ = [
    "CANCEL_TIMEOUT",
    "MAX_PROXIES",
    "ChainFile",
    "ComponentSpec",
    "Dialect",
    "InterpolatedString",
    "Limits",
    "McpBridge",
    "OnCancelTimeout",
    "OnFailure",
    "OnStall",
    "OnStartFailure",
    "RestartBudget",
    "Tls",
    "ValuePath",
]

CANCEL_TIMEOUT = 10.0
"""Seconds that an agent has by default to end what was cancelled."""
MAX_PROXIES = 64
"""How many proxies a chain may have after its nested chains were put in line."""

Dialect: TypeAlias = Literal["proxy", "_proxy"]
OnStall: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
OnCancelTimeout: TypeAlias = Literal["answer", "restart"]
OnFailure: TypeAlias = Literal["restart", "bypass", "end_chain"]
OnStartFailure: TypeAlias = Literal["explain", "error"]
McpBridge: TypeAlias = Literal["auto", "stdio", "http", "off"]

ValuePath: TypeAlias = tuple[str | int, ...]
"""The way to a value: `("run", 0)`, `("with", "files", 1)`."""


class InterpolatedString(msgspec.Struct, frozen=True):
    """A string with `${VAR}` in it: `text` as the file has it, `values` what the variables held
    that are called `names`.

    Print `text`; whatever prints the expanded string prints what may be a secret.
    """

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Written(text={self.text!r})"


class RestartBudget(msgspec.Struct, frozen=True):
    """A restart budget: `count` restarts `within` so many seconds (`3 in 60s`)."""

    count: int
    within: float


class Tls(msgspec.Struct, frozen=True):
    """How to speak TLS with a component on another machine; files are absolute paths, in PEM."""

    ca: str | None = None
    """The certificates that are trusted; None: those of the system."""
    cert: str | None = None
    """Our own certificate, with the chain that leads to it."""
    key: str | None = None
    """The key of `cert`; None: it is in the same file."""
    server_name: str | None = None
    """The name that its certificate must have; None: the host of the URL."""
    verify: bool = True
    """Whether its certificate is looked at at all."""


class ComponentSpec(msgspec.Struct, frozen=True):
    """One component of a chain. Exactly one of `run`, `use`, `connect`, `unix` and `chain` is not
    None."""

    name: str
    """Given or derived; no other component of the file has it. Parts of a nested name are joined
    by `/`."""
    run: tuple[str, ...] | None = None
    """The argv of a program that speaks the protocol; a relative path to it is made absolute."""
    use: str | None = None
    """The name of an entry point, or `/absolute/path.py:Class`."""
    connect: str | None = None
    """A `ws`, `wss`, `http` or `https` URL."""
    unix: str | None = None
    """The path of a Unix stream socket, absolute."""
    chain: ChainFile | None = None
    """A nested chain."""
    options: Mapping[str, Any] = {}
    """`with:` as mappings, lists and strings; None stands for an unquoted `null`. What a string
    means is decided by the field it is for: see `structure_options`."""
    env: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of variables, headers and options whose values are masked, whatever they look like."""
    inherit_env: bool = True
    """Whether the process sees the conductor's environment too, or `env` alone."""
    cwd: str | None = None
    """Absolute; None is the conductor's own."""
    isolate: bool = False
    """Whether a proxy named by `use` runs in a process of its own."""
    stdin_head: bytes = b""
    """What its process reads from stdin before the protocol."""
    ssh: str | None = None
    """Where to run `run`, as the program `ssh` has it: `user@host`; None is this machine."""
    headers: Mapping[str, str] = {}
    """Sent with every request to what `connect` names."""
    tls: Tls | None = None
    """For `connect` with `wss` or `https`; None is the default."""
    ping_timeout: float = 30.0
    """Seconds after which another machine that is silent although it was asked counts as gone."""
    dialect: Dialect | None = None
    """How the component spells the proxy methods; None: detect."""
    start_timeout: float = 30.0
    """Seconds until `initialize` must have been answered."""
    stop_timeout: float = 5.0
    """Seconds between closing the component's stdin and SIGTERM, and between that and SIGKILL."""
    request_timeout: Mapping[str, float] = {}
    """Seconds by method; a method that is not named has no limit."""
    stall_timeout: float | None = None
    """Seconds of silence during a prompt turn that count as a hang; None: never."""
    on_stall: OnStall = "report"
    """How far to go about a hang: the highest rung of the ladder."""
    cancel_timeout: float = CANCEL_TIMEOUT
    """Of an agent: seconds after which what was cancelled and goes on is ended, in its place or in
    that of the component that holds it up."""
    on_cancel_timeout: OnCancelTimeout = "answer"
    """Whether the component, if it holds the turn up, is restarted then, too."""
    on_failure: OnFailure | None = None
    """What follows when the component fails; None is the default of its kind."""
    restarts: RestartBudget | None = None
    """None is the default budget."""
    required: bool = False
    """Whether the chain must not run without it: it is never bypassed."""
    location: SourceLocation | None = None
    """Where the component stands; None if it comes from the command line."""
    locations: Mapping[ValuePath, SourceLocation] = {}
    """Where every value below the component stands, by its path as the file spells it."""
    key_locations: Mapping[ValuePath, SourceLocation] = {}
    """Where the key of every such value stands."""
    written: Mapping[ValuePath, InterpolatedString] = {}
    """The strings that had `${VAR}` in them, as they were written."""
    directory: str | None = None
    """What relative paths are relative to, absolute; None is the working directory."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What its process sees; `environ` is the conductor's own."""
        return {**(environ if self.inherit_env else {}), **self.env}

    def __repr__(self) -> str:
        all_kinds = ("run", "use", "connect", "unix", "chain")
        kinds = [kind for kind in all_kinds if getattr(self, kind)]
        where = f" at {self.location}" if self.location else ""
        return f"<Component {self.name!r} {' '.join(kinds)}{where}>"


class ChainFile(msgspec.Struct, frozen=True):
    """A chain: its proxies, the first one nearest the client, and its agent.

    Without an agent it is a proxy chain, which can be part of another one. `path` is the file as
    the user named it.
    """

    path: str
    name: str
    proxies: tuple[ComponentSpec, ...] = ()
    agent: ComponentSpec | None = None
    mcp_bridge: McpBridge = "auto"
    limits: Limits = Limits()
    on_start_failure: OnStartFailure | None = None
    """What `run` answers to `initialize` when the chain does not start; None is its default."""

    def flat(self) -> tuple[ComponentSpec, ...]:
        """The components as messages meet them on their way from the client to the agent.

        A nested chain is replaced by its components, whose names begin with its own (`tools/…`).
        The agent, if there is one, is the last.
        """
        flat: list[ComponentSpec] = []
        for component in (*self.proxies, *([self.agent] if self.agent else [])):
            if component.chain is None:
                flat.append(component)
            else:
                flat += [
                    msgspec.structs.replace(inner, name=f"{component.name}/{inner.name}")
                    for inner in component.chain.flat()
                ]
        return tuple(flat)
