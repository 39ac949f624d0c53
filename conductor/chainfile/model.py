"""The content of a chain file as frozen data: `ChainFile` and its `ComponentSpec`s.

A chain given on the command line uses the same classes, without source locations. No `repr` shows
options, arguments or environment values, which may be secret. The classes are `msgspec.Struct`s:
creating an attrs class of this size takes 1 ms at every start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from conductor.chainfile.naming import command_name
from conductor.chainfile.source_location import SourceLocation
from conductor.limits import Limits

__all__ = [
    "CANCEL_TIMEOUT",
    "ENTRY_POINT_GROUP",
    "MAX_PROXIES",
    "MERGED_SETTINGS",
    "NEVER_BESIDE_PLUGINS",
    "START_TIMEOUT",
    "STOP_TIMEOUT",
    "AdaptMode",
    "Adaptation",
    "ChainFile",
    "ComponentSpec",
    "Dialect",
    "InterpolatedString",
    "Limits",
    "McpBridgeMode",
    "McpStart",
    "OnCancelTimeout",
    "OnFailure",
    "OnStall",
    "OnStartFailure",
    "RegistryName",
    "RestartBudget",
    "Sandbox",
    "Tls",
    "ValuePath",
    "When",
]

CANCEL_TIMEOUT = 10.0
"""Default time in seconds for an agent to end a cancelled turn or request."""
START_TIMEOUT = 30.0
"""Default `start_timeout` of a component, in seconds."""
STOP_TIMEOUT = 5.0
"""Default `stop_timeout` of a component, in seconds."""
MAX_PROXIES = 64
"""Maximum number of proxies in a chain, those of nested chains included."""

MERGED_SETTINGS = ("mcp_bridge", "mcp", "limits")
"""Keys of a file with values that replace those of another file, member by member."""

ENTRY_POINT_GROUP: Final = "conductor.components"
"""Entry-point group of components in installed packages."""
NEVER_BESIDE_PLUGINS: Final = frozenset(
    {*sys.stdlib_module_names, "conductor", "proxies", "bridges"}
)
"""Top-level modules that a plugin file never imports from its own directory. Those of a trusted
project that it may import are hashed, so reading and importing have to agree on this."""

Dialect: TypeAlias = Literal["proxy", "_proxy"]
OnStall: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
OnCancelTimeout: TypeAlias = Literal["answer", "restart"]
OnFailure: TypeAlias = Literal["restart", "bypass", "end_chain"]
OnStartFailure: TypeAlias = Literal["explain", "error"]
AdaptMode: TypeAlias = Literal["auto", "always", "never"]
McpBridgeMode: TypeAlias = Literal["auto", "stdio", "off"]

ValuePath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes that lead to a value: `("run", 0)`, `("with", "files", 1)`."""


class InterpolatedString(msgspec.Struct, frozen=True):
    """A string with `${VAR}` in it: `text` as written, and `values` of the variables `names`.

    Print only `text`: the expanded string may contain secrets.
    """

    text: str
    values: tuple[str, ...]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"InterpolatedString(text={self.text!r})"


class RestartBudget(msgspec.Struct, frozen=True):
    """A restart budget: `count` restarts `within` so many seconds (`3 in 60s`)."""

    count: int
    within: float


_PROCESSES: Final = 8
_SHARED_SERVERS: Final = frozenset({"opencode", "opencode-ai", "fast-agent", "fast-agent-acp"})
"""Agents with one MCP server of a name for all sessions of a process, by the name in the registry
and of the command: opencode 1.18.33 offers all to every session, fast-agent 0.10.30 refuses a name
that another session has."""


class RegistryName(msgspec.Struct, frozen=True):
    """An agent or proxy of a registry, by name."""

    name: str
    lock: str
    """The lock file, absolute; it need not exist."""
    source: str | None = None
    """The registry: an absolute path or a URL; None: the default."""
    install_scripts: bool = False
    """Whether its packages may run programs when they are installed."""
    files: Mapping[str, bytes] | None = None
    """Content of the lock file, and of the registry if it is a file; see `ComponentSpec`."""


class Tls(msgspec.Struct, frozen=True):
    """TLS settings of a connection to a remote component; files are absolute paths to PEM files."""

    ca: str | None = None
    """Trusted CA certificates; without it, those of the system."""
    cert: str | None = None
    """The client certificate, with its chain."""
    key: str | None = None
    """The private key of `cert`; without it, in the same file."""
    server_name: str | None = None
    """Name required in the server's certificate; without it, the host of the URL."""
    verify: bool = True
    """Whether the server's certificate is verified."""


class McpStart(msgspec.Struct, frozen=True):
    """Policy for an MCP server that the bridge connects and that does not start."""

    required: bool = False
    """Whether the session set-up fails; else the server is left out, and the user told."""
    start_timeout: float = START_TIMEOUT
    """Seconds in which it must answer the agent's MCP client."""


class Sandbox(msgspec.Struct, frozen=True):
    """The sandbox of a program; paths are absolute, but for those of `hide`."""

    workspaces: Mapping[str, str] = {}
    """Directories that the program may write to, with their paths inside the sandbox; empty: the
    working directory."""
    read: tuple[str, ...] = ()
    """More files and directories, read-only; those that do not exist are skipped."""
    write: tuple[str, ...] = ()
    """More files and directories that the program may write to."""
    hide: tuple[str, ...] = ()
    """Shell patterns of files and directories that look empty; relative ones: in each workspace."""
    network: bool = True
    """Whether the program shares the network of the machine, or has only a loopback of its own."""
    pass_env: tuple[str, ...] = ()
    """Names, or shell patterns, of more variables that it inherits."""
    protect: tuple[str, ...] = ()
    """Real paths of files and directories that it must not change, where it may write."""
    keep: tuple[str, ...] = ()
    """Real paths that other sandboxes show, where it may write: it must not replace them."""


class When(msgspec.Struct, frozen=True):
    """Conditions for a component: every key must hold; of several values of a key, one must."""

    client: tuple[str, ...] = ()
    """The name of the client, as it tells it in `initialize`; a shell pattern, in any case."""
    agent: tuple[str, ...] = ()
    """The name of the chain's agent in its file or the registry, or its command."""
    cwd: tuple[str, ...] = ()
    """A directory that the session's directory is, or is in; a shell pattern, with `**` for any
    number of directories."""
    capability: tuple[str, ...] = ()
    """A capability of the client, as `fs.writeTextFile`; it must not be missing, false or null."""
    env: tuple[str, ...] = ()
    """An environment variable that is set, or `NAME=VALUE`."""


class ComponentSpec(msgspec.Struct, frozen=True):
    """One component of a chain. Exactly one of `run`, `use`, `registry`, `connect`, `unix` and
    `chain` is not None; one with `registry` gets its `run` when the chain is built."""

    name: str
    """Given or derived; unique in the file. Names in nested chains are joined by `/`."""
    run: tuple[str, ...] | None = None
    """Command of a program that speaks the protocol; a relative path to it is made absolute."""
    registry: RegistryName | None = None
    """Name of an agent or proxy in a registry."""
    use: str | None = None
    """The name of an entry point, or `/absolute/path.py:Class`."""
    connect: str | None = None
    """A `ws`, `wss`, `http` or `https` URL."""
    unix: str | None = None
    """The path of a Unix stream socket, absolute."""
    chain: ChainFile | None = None
    """A nested chain."""
    options: Mapping[str, Any] = {}
    """`with:` as mappings, lists, strings and None (unquoted `null`). The type of an option decides
    what a string means: see `structure_options`."""
    env: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Names of variables, headers and options with values that are always masked."""
    inherit_env: bool = True
    """Whether the process inherits the conductor's environment, or gets `env` alone."""
    cwd: str | None = None
    """Working directory; without it, the conductor's."""
    sandbox: Sandbox | None = None
    """The sandbox that `run` starts in; without it, no sandbox."""
    isolate: bool = False
    """Whether a proxy named by `use` runs in a process of its own."""
    stdin_head: bytes = b""
    """Bytes that its process reads from stdin before the protocol starts."""
    ssh: str | None = None
    """Destination for `ssh` on which `run` is executed: `user@host`; without it, this machine."""
    headers: Mapping[str, str] = {}
    """HTTP headers of every request to the `connect` URL."""
    tls: Tls | None = None
    """For `connect` with `wss` or `https`; without it, default settings."""
    ping_timeout: float = 30.0
    """Seconds without an answer to a ping until a remote component counts as lost."""
    dialect: Dialect | None = None
    """Prefix of the proxy methods that the component uses; without it, detected."""
    start_timeout: float = START_TIMEOUT
    """Seconds until `initialize` must be answered."""
    stop_timeout: float = STOP_TIMEOUT
    """Seconds between closing the component's stdin and SIGTERM, and between that and SIGKILL."""
    request_timeout: Mapping[str, float] = {}
    """Seconds by method; methods without an entry have no limit."""
    stall_timeout: float | None = None
    """Time without a message during a prompt turn that counts as a stall; without it, never."""
    on_stall: OnStall = "report"
    """The last escalation step on a stall: `report`, `cancel`, `cancel_request`, `restart`."""
    cancel_timeout: float = CANCEL_TIMEOUT
    """Agent only: seconds after which a cancelled turn or request that goes on is answered in place
    of the component that blocks it."""
    session_processes: int | None = None
    """Agent only: further processes for one session each, that run at the same time; with 0, one
    process has all sessions. The default is 0, but 8 for opencode and fast-agent, whose sessions
    share MCP servers."""
    on_cancel_timeout: OnCancelTimeout = "answer"
    """Whether the component is also restarted if it blocks the cancelled turn."""
    on_failure: OnFailure | None = None
    """Action when the component fails; without it, the default of its kind."""
    restarts: RestartBudget | None = None
    """Restart budget, such as `3 in 60s`; without it, the default."""
    required: bool = False
    """Whether the chain cannot run without it; it is never bypassed."""
    when: tuple[When, ...] = ()
    """Conditions under which the chain has it, those of nested chains around it included; if one
    does not hold, the component is left out."""
    location: SourceLocation | None = None
    """Source location of the component; None for the command line."""
    locations: Mapping[ValuePath, SourceLocation] = {}
    """Source locations of the values below the component, by path with the keys of the file."""
    key_locations: Mapping[ValuePath, SourceLocation] = {}
    """Source locations of their keys."""
    written: Mapping[ValuePath, InterpolatedString] = {}
    """The strings that contain `${VAR}`, as written."""
    directory: str | None = None
    """Base of relative paths, absolute; None: the working directory."""
    files: Mapping[str, bytes] | None = None
    """Content of the Python files and chain files that it may load, by absolute path, as the user
    trusts it. Others are not loaded, and none is read again. None: files are read from the disk."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of its process; `environ` is the conductor's."""
        return {**(environ if self.inherit_env else {}), **self.env}

    def option_texts(self) -> Iterator[str]:
        """The strings in its options, at any depth; keys are left out."""
        return _texts(self.options)

    def __repr__(self) -> str:
        all_kinds = ("run", "use", "registry", "connect", "unix", "chain")
        kinds = [kind for kind in all_kinds if getattr(self, kind)]
        where = f" at {self.location}" if self.location else ""
        return f"<Component {self.name!r} {' '.join(kinds)}{where}>"


def _texts(value: Any) -> Iterator[str]:
    """The strings of an option, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


class Adaptation(msgspec.Struct, frozen=True):
    """Settings of one adapter in the chain file (`adapt:`)."""

    mode: AdaptMode = "auto"
    """Whether it is inserted: if client and agent need it, in any case, or never."""
    options: Mapping[str, Any] = {}
    """Same form as in `ComponentSpec`."""
    location: SourceLocation | None = None


class ChainFile(msgspec.Struct, frozen=True):
    """A chain: its proxies, the first one nearest the client, and its agent.

    Without an agent it is a proxy chain, usable in other chains. `path` is the file as the user
    named it.
    """

    path: str
    name: str
    proxies: tuple[ComponentSpec, ...] = ()
    agent: ComponentSpec | None = None
    mcp_bridge: McpBridgeMode = "auto"
    mcp: McpStart = McpStart()
    limits: Limits = Limits()
    adapt: Mapping[str, Adaptation] = {}
    """Settings of adapters, by name; those without one have the default of the table."""
    on_start_failure: OnStartFailure | None = None
    """Form in which `run` reports a failed start: in the chat, or as an error; without it, the
    command decides."""
    prewarm: bool = False
    """Whether programs of the chain start before a client asks."""
    given: frozenset[ValuePath] = frozenset()
    """The settings of `MERGED_SETTINGS` that the file contains, as key or as key and member."""

    @property
    def session_processes(self) -> int:
        """That of the agent."""
        agent = self.agent
        if agent is None:
            return 0
        if agent.chain is not None:
            return agent.chain.session_processes
        if agent.session_processes is not None:
            return agent.session_processes
        names = {agent.registry.name} if agent.registry is not None else set()
        if agent.run:
            names.add(command_name(agent.run))
        return _PROCESSES if names & _SHARED_SERVERS else 0

    @property
    def shares_processes(self) -> bool:
        """Whether a session for which there is no further process has that of another one: the file
        does not say how many there are."""
        agent = self.agent
        if agent is None or agent.chain is None:
            return agent is not None and agent.session_processes is None
        return agent.chain.shares_processes

    @property
    def stop_timeout(self) -> float:
        """The longest `stop_timeout` of its components, in seconds."""
        return max((spec.stop_timeout for spec in self.flat()), default=STOP_TIMEOUT)

    def flat(self) -> tuple[ComponentSpec, ...]:
        """The components in the order from the client to the agent, nested chains expanded.

        The components of a nested chain have its name as prefix (`tools/…`). The agent, if present,
        is the last.
        """
        flat: list[ComponentSpec] = []
        for component in (*self.proxies, *([self.agent] if self.agent else [])):
            if component.chain is None:
                flat.append(component)
            else:
                flat += [
                    msgspec.structs.replace(
                        inner,
                        name=f"{component.name}/{inner.name}",
                        when=(*component.when, *inner.when),
                    )
                    for inner in component.chain.flat()
                ]
        return tuple(flat)
