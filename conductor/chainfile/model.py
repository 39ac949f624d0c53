"""The keys of chain files, and a read file as frozen data: `ChainFile` and its `ComponentSpec`s.

A key is declared once, as a field with its type, default, docstring and `Key` (`keys`): those of a
component in `ComponentItem` and `AgentItem`, those of a file in `FileItem`. `ComponentSpec` and
`ChainFile` add what is known of them after reading: locations, derived names. A chain given on the
command line uses the same classes. No `repr` shows options, arguments or environment values, which
may be secret. The classes are `msgspec.Struct`s: creating an attrs class of this size takes 1 ms at
every start.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from conductor.chainfile.diagnostics import (
    InterpolatedString,
    InvalidValue,
    SourceLocation,
    ValueIssue,
    ValuePath,
    expected,
    invalid,
)
from conductor.chainfile.keys import COMPONENT_KINDS, Key
from conductor.chainfile.paths import absolute, command_name, working_directory
from conductor.chainfile.values import (
    Argv,
    Seconds,
    argv,
    component_name,
    environment_names,
    every,
    host_name,
    http_headers,
    nonempty_path,
    not_negative,
    plugin_name,
    positive,
    registry_name,
    registry_source,
    url,
    workspace_paths,
)
from conductor.limits import Limits

__all__ = [
    "CANCEL_TIMEOUT",
    "ENTRY_POINT_GROUP",
    "MAX_PROXIES",
    "NEVER_BESIDE_PLUGINS",
    "START_TIMEOUT",
    "STOP_TIMEOUT",
    "AdaptMode",
    "Adaptation",
    "AdapterItem",
    "AgentItem",
    "ChainFile",
    "ComponentItem",
    "ComponentSpec",
    "Dialect",
    "FileItem",
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
    "SandboxItem",
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

ENTRY_POINT_GROUP: Final = "conductor.components"
"""Entry-point group of components in installed packages."""
NEVER_BESIDE_PLUGINS: Final = frozenset(
    {*sys.stdlib_module_names, "conductor", "proxies", "bridges"}
)
"""Top-level modules that a plugin file never imports from its own directory. Those of a trusted
project that it may import are hashed, so reading and importing have to agree on this."""

Dialect: TypeAlias = Literal["proxy", "_proxy", "_meta"]
OnStall: TypeAlias = Literal["report", "cancel", "cancel_request", "restart"]
OnCancelTimeout: TypeAlias = Literal["answer", "restart"]
OnFailure: TypeAlias = Literal["restart", "bypass", "end_chain"]
OnStartFailure: TypeAlias = Literal["explain", "error"]
AdaptMode: TypeAlias = Literal["auto", "always", "never"]
McpBridgeMode: TypeAlias = Literal["auto", "stdio", "off"]

_VARIABLE: Final = r"[^\d\s=][^\s=]*"
_WITH_CHAINS: Final = frozenset({*COMPONENT_KINDS, "ssh"})
_PROGRAMS: Final = frozenset({"run", "ssh", "use", "registry"})
_HERE: Final = _PROGRAMS - {"ssh"}


def _absolute(path: str | None, directory: str) -> str | None:
    return None if path is None else absolute(directory, path)


def _absolutes(paths: Sequence[str], directory: str) -> tuple[str, ...]:
    return tuple(absolute(directory, path) for path in paths)


def _strings(written: Sequence[str] | str | None, _: str) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(written or ())


_PATH: Final = Key(convert=_absolute)
_PATHS: Final = Key(convert=_absolutes)
_STRINGS: Final = Key(written=list[str] | str | None, convert=_strings)


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
    """The `tls:` mapping of a component: settings of a connection; files are PEM files."""

    ca: Annotated[str | None, nonempty_path, _PATH] = None
    """Trusted CA certificates; without it, those of the system."""
    cert: Annotated[str | None, nonempty_path, _PATH] = None
    """The client certificate, with its chain."""
    key: Annotated[str | None, nonempty_path, _PATH] = None
    """The private key of `cert`; without it, in the same file."""
    server_name: Annotated[str | None, host_name] = None
    """Name required in the server's certificate; without it, the host of the URL."""
    verify: bool = True
    """Whether the server's certificate is verified."""


def _certificate_of_key(tls: Tls) -> None:
    if tls.key is not None and tls.cert is None:
        raise InvalidValue([ValueIssue("`key` needs a certificate", "add `cert`", path=("key",))])


class McpStart(msgspec.Struct, frozen=True):
    """`mcp:` of a file: policy for an MCP server that does not start."""

    required: bool = False
    """Whether a session fails if an MCP server does not start; else it is left out with a
    notice."""
    start_timeout: Annotated[Seconds, positive] = START_TIMEOUT
    """The time in which an MCP server must answer the agent."""


def _workspaces(written: Sequence[str] | Mapping[str, str], directory: str) -> dict[str, str]:
    if isinstance(written, Mapping):
        return {absolute(directory, path): os.path.normpath(to) for path, to in written.items()}
    return {path: path for path in _absolutes(written, directory)}


class SandboxItem(msgspec.Struct, frozen=True):
    """The `sandbox:` mapping of a component."""

    workspaces: Annotated[
        Mapping[str, str],
        workspace_paths,
        Key(written=list[str] | dict[str, str], convert=_workspaces),
    ] = {}
    """Directories that the program may write to, with their paths inside the sandbox; empty: the
    working directory."""
    read: Annotated[tuple[str, ...], every(nonempty_path), _PATHS] = ()
    """More files and directories, read-only; those that do not exist are skipped."""
    write: Annotated[tuple[str, ...], every(nonempty_path), _PATHS] = ()
    """More files and directories that the program may write to."""
    hide: Annotated[
        tuple[str, ...],
        every(nonempty_path),
        Key(convert=lambda paths, _: tuple(map(os.path.expanduser, paths))),
    ] = ()
    """Shell patterns of files and directories that look empty; relative ones: in each workspace."""
    network: bool = True
    """Whether the program shares the network of the machine, or has only a loopback of its own."""
    pass_env: tuple[str, ...] = ()
    """Names, or shell patterns, of more variables that it inherits."""


class Sandbox(SandboxItem, frozen=True):
    """The sandbox of a program; paths are absolute, but for those of `hide`."""

    protect: tuple[str, ...] = ()
    """Real paths of files and directories that it must not change, where it may write."""
    keep: tuple[str, ...] = ()
    """Real paths that other sandboxes show, where it may write: it must not replace them."""


def _sandbox(written: SandboxItem | bool, _: str) -> Sandbox | None:
    if isinstance(written, bool):
        return Sandbox() if written else None
    return Sandbox(**msgspec.structs.asdict(written))


def _environment_conditions(value: list[str] | str) -> None:
    for text in _strings(value, ""):
        if re.fullmatch(_VARIABLE, text.partition("=")[0]) is None:
            raise expected("the name of a variable, or `NAME=VALUE`")


class When(msgspec.Struct, frozen=True):
    """Conditions for a component: every key must hold; of several values of a key, one must."""

    client: Annotated[tuple[str, ...], _STRINGS] = ()
    """The name of the client, as it tells it in `initialize`; a shell pattern, in any case."""
    agent: Annotated[tuple[str, ...], _STRINGS] = ()
    """The name of the chain's agent in its file or the registry, or its command."""
    cwd: Annotated[
        tuple[str, ...],
        Key(
            written=list[str] | str | None,
            convert=lambda written, directory: _absolutes(_strings(written, ""), directory),
        ),
    ] = ()
    """A directory that the session's directory is, or is in; a shell pattern, with `**` for any
    number of directories."""
    capability: Annotated[tuple[str, ...], _STRINGS] = ()
    """A capability of the client, as `fs.writeTextFile`; it must not be missing, false or null."""
    env: Annotated[tuple[str, ...], _environment_conditions, _STRINGS] = ()
    """An environment variable that is set, or `NAME=VALUE`."""


def _conditions(value: When) -> None:
    if value == When():
        *most, last = (f"`{key}`" for key in value.__struct_fields__)
        raise invalid("`when` has no condition", f"add {', '.join(most)} or {last}")


class ComponentItem(msgspec.Struct, frozen=True, rename={"options": "with"}):
    """A component: an item of `proxies:`."""

    name: Annotated[
        str,
        component_name,
        Key(written=str | None, kinds=_WITH_CHAINS, shown=False, isolated=True),
    ]
    """Given or derived; unique in the file. Names in nested chains are joined by `/`."""
    run: Annotated[Argv | None, argv] = None
    """Command of a program that speaks the protocol; a relative path to it is made absolute."""
    use: Annotated[str | None, plugin_name, Key(isolated=True)] = None
    """A ready-made or installed proxy or agent by its name, or a class in a file:
    `./file.py:Class`."""
    registry: Annotated[
        RegistryName | None,
        registry_name,
        Key(written=str | None, convert=lambda name, _: name and RegistryName(name, "")),
    ] = None
    """Name of an agent or proxy in a registry."""
    install_scripts: Annotated[bool, Key(kinds=frozenset({"registry"}), shown=False)] = False
    """Whether packages of the registry may run programs when they are installed."""
    connect: Annotated[str | None, url] = None
    """A `ws`, `wss`, `http` or `https` URL."""
    unix: Annotated[str | None, nonempty_path, _PATH] = None
    """The path of a Unix stream socket."""
    chain: Annotated[
        ChainFile | None,
        nonempty_path,
        Key(written=str | None, kinds=_WITH_CHAINS, convert=lambda *_: None, shown=False),
    ] = None
    """Another chain file: its proxies stand in this place."""
    options: Annotated[
        Mapping[str, Any], Key(kinds=frozenset({"use"}), secret=True, isolated=True)
    ] = {}
    """Options of the component that `use` names; `acp-conductor components NAME` lists them."""
    env: Annotated[
        Mapping[str, str | None],
        environment_names,
        Key(kinds=_PROGRAMS, secret=True, isolated=True),
    ] = {}
    """Environment variables of its process; `null` removes one that it would inherit."""
    stderr: Annotated[
        str | None, nonempty_path, Key(kinds=_PROGRAMS, convert=_absolute, wrapped=True)
    ] = None
    """A file that also gets what its process writes to stderr, as it is; only its owner can read
    it. At 1 MiB it is renamed to `FILE.1`."""
    secrets: Annotated[tuple[str, ...], Key(isolated=True)] = ()
    """Names of variables, headers and options with values that are always masked."""
    inherit_env: Annotated[bool, Key(kinds=_HERE)] = True
    """Whether the process inherits the conductor's environment, or gets `env` alone."""
    cwd: Annotated[str | None, nonempty_path, Key(kinds=_PROGRAMS)] = None
    """Working directory; without it, the conductor's."""
    sandbox: Annotated[
        Sandbox | None,
        Key(
            written=SandboxItem | bool,
            kinds=frozenset({"run", "registry"}),
            convert=_sandbox,
            wrapped=True,
        ),
    ] = None
    """The sandbox that `run` starts in; without it, no sandbox."""
    isolate: Annotated[bool, Key(kinds=frozenset({"use"}), shown=False)] = False
    """Whether a proxy named by `use` runs in a process of its own."""
    ssh: Annotated[str | None, host_name, Key(kinds=frozenset({"run", "ssh"}))] = None
    """Destination for `ssh` on which `run` is executed: `user@host`; without it, this machine."""
    headers: Annotated[
        Mapping[str, str], http_headers, Key(kinds=frozenset({"connect"}), secret=True)
    ] = {}
    """HTTP headers of every request to the `connect` URL."""
    tls: Annotated[Tls | None, _certificate_of_key, Key(kinds=frozenset({"connect"}))] = None
    """For `connect` with `wss` or `https`; without it, default settings."""
    ping_timeout: Annotated[Seconds, positive, Key(kinds=frozenset({"connect", "ssh"}))] = 30.0
    """Seconds without an answer to a ping until a remote component counts as lost."""
    dialect: Dialect | None = None
    """Prefix of the proxy methods that the component uses; without it, `proxy` or `_proxy` is
    detected. `_meta` is the oldest dialect: `initialize` with `_meta.proxy`,
    `_proxy/successor/request` and `_proxy/successor/notification`."""
    start_timeout: Annotated[Seconds, positive, Key(shown=True, wrapped=True, isolated=True)] = (
        START_TIMEOUT
    )
    """Seconds until `initialize` must be answered."""
    stop_timeout: Annotated[Seconds, Key(shown=True, wrapped=True, isolated=True)] = STOP_TIMEOUT
    """Seconds between closing the component's stdin and SIGTERM, and between that and SIGKILL."""
    request_timeout: Annotated[Mapping[str, Seconds], every(positive), Key(wrapped=True)] = {}
    """Seconds by method; methods without an entry have no limit."""
    stall_timeout: Annotated[Seconds | None, positive, Key(wrapped=True)] = None
    """Time without a message during a prompt turn that counts as a stall; without it, never."""
    on_stall: Annotated[OnStall, Key(wrapped=True)] = "report"
    """The last escalation step on a stall: `report`, `cancel`, `cancel_request`, `restart`."""
    on_cancel_timeout: Annotated[OnCancelTimeout, Key(wrapped=True)] = "answer"
    """Whether the component is also restarted if it blocks the cancelled turn."""
    on_failure: Annotated[OnFailure | None, Key(wrapped=True)] = None
    """Action when the component fails; without it, the default of its kind."""
    restarts: Annotated[RestartBudget | None, Key(wrapped=True)] = None
    """Restart budget, such as `3 in 60s`; without it, the default."""
    required: Annotated[bool, Key(wrapped=True, isolated=True)] = False
    """Whether the chain cannot run without it; it is never bypassed."""
    when: Annotated[
        tuple[When, ...],
        _conditions,
        Key(
            written=When | None,
            kinds=_WITH_CHAINS,
            convert=lambda when, _: () if when is None else (when,),
        ),
    ] = ()
    """Conditions under which the chain has it, those of nested chains around it included; if one
    does not hold, the component is left out."""


class AgentItem(ComponentItem, frozen=True):
    """The `agent:`. It cannot be bypassed, because it has no successor."""

    on_failure: Annotated[
        OnFailure | None, Key(written=Literal["restart", "end_chain"] | None, wrapped=True)
    ] = None
    cancel_timeout: Annotated[Seconds, positive, Key(wrapped=True)] = CANCEL_TIMEOUT
    """Agent only: seconds after which a cancelled turn or request that goes on is answered in place
    of the component that blocks it."""
    session_processes: Annotated[int | None, not_negative, Key(wrapped=True)] = None
    """Agent only: further processes for one session each, that run at the same time; with 0, one
    process has all sessions. The default is 0, but 8 for opencode and fast-agent, whose sessions
    share MCP servers."""


class ComponentSpec(AgentItem, frozen=True):
    """One component of a chain. Exactly one of `run`, `use`, `registry`, `connect`, `unix` and
    `chain` is not None; one with `registry` gets its `run` when the chain is built. Paths are
    absolute. The type of an option decides what a string in `options` means: see
    `structure_options`."""

    stdin_head: bytes = b""
    """Bytes that its process reads from stdin before the protocol starts."""
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
        found = {**(environ if self.inherit_env else {}), **self.env}
        return {name: value for name, value in found.items() if value is not None}

    def writable_paths(self) -> tuple[str, ...]:
        """Real paths of what it can write to in its sandbox; empty without a sandbox."""
        if self.sandbox is None:
            return ()
        shared = self.sandbox.workspaces or (self.cwd or working_directory(),)
        return tuple(os.path.realpath(path) for path in (*shared, *self.sandbox.write))

    @property
    def program_names(self) -> frozenset[str]:
        """The names of its program: in the registry, and of its command."""
        of_registry = [] if self.registry is None else [self.registry.name]
        return frozenset([*of_registry, *([command_name(self.run)] if self.run else [])])

    def option_texts(self) -> Iterator[str]:
        """The strings in its options, at any depth; keys are left out."""
        return _texts(self.options)

    def __repr__(self) -> str:
        kinds = [kind for kind in COMPONENT_KINDS if getattr(self, kind)]
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


class AdapterItem(msgspec.Struct, frozen=True, rename={"options": "with"}):
    """An adapter with options."""

    mode: AdaptMode = "auto"
    """`auto`: inserted if client and agent need it; `always`; `never`."""
    options: dict[str, Any] = {}
    """The options of the proxy of this name."""


class Adaptation(AdapterItem, frozen=True):
    """Settings of one adapter in the chain file (`adapt:`)."""

    location: SourceLocation | None = None


class AdaptItem(msgspec.Struct, frozen=True):
    """`adapt:` as it is written: a key for each row of `conductor.adapters.table`."""

    additional_directories: AdaptMode | AdapterItem | None = None
    """Further directories of a session, for an agent that knows only one."""
    boolean_options: AdaptMode | AdapterItem | None = None
    """Options that are on or off, for a client that only knows selections."""
    cursor_questions: AdaptMode | AdapterItem | None = None
    """Questions and plans of Cursor's agent, for a client that does not know its requests."""
    elicitation: AdaptMode | AdapterItem | None = None
    """Questions of the agent, for a client that has no forms."""
    journal: AdaptMode | AdapterItem | None = None
    """Sessions in files, for an agent that cannot list or load them."""
    known_kinds: AdaptMode | AdapterItem | None = None
    """Updates, content and values that an older client does not know."""
    local_files: AdaptMode | AdapterItem | None = None
    """Files of this machine, in the session's directories, for a client that has none."""
    local_terminals: AdaptMode | AdapterItem | None = None
    """Commands on this machine, for a client that has no terminals."""
    normalize: AdaptMode | AdapterItem | None = None
    """MCP servers and other messages as the protocol says, of a client known for mistakes."""
    notices: AdaptMode | AdapterItem | None = None
    """Notices of the agent, for a client that does not show them."""
    plan_approval: AdaptMode | AdapterItem | None = None
    """Plans are shown before their approval is asked for, for a client that shows titles only."""
    prompt_content: AdaptMode | AdapterItem | None = None
    """Images, audio and embedded resources, for an agent that takes only text."""
    queue: AdaptMode | AdapterItem | None = None
    """Prompts that wait for the end of a turn, for an agent that refuses them."""
    subagents: AdaptMode | AdapterItem | None = None
    """Sessions of subagents, for a client that does not know them."""
    system_prompt: AdaptMode | AdapterItem | None = None
    """A system prompt of the client, for an agent that takes none."""
    turn_updates: AdaptMode | AdapterItem | None = None
    """Updates between turns are kept until the next one, for a client that mis-handles them."""
    v1_v2: AdaptMode | AdapterItem | None = None
    """Between a client of one version of the protocol and an agent of the other."""


def _registry_source(written: str | None, directory: str) -> str | None:
    return written if written is None or "://" in written else absolute(directory, written)


class FileItem(msgspec.Struct, frozen=True, kw_only=True):
    """A chain file as it is written."""

    version: Literal[1] = 1
    """The version of this format."""
    name: Annotated[str, component_name, Key(written=str | None)]
    """Shown in logs, traces and `ps`; without it, the name of the file."""
    proxies: Annotated[tuple[ComponentSpec, ...], Key(written=tuple[ComponentItem, ...])] = ()
    """The proxies; the first is nearest the editor."""
    agent: Annotated[ComponentSpec | None, Key(written=AgentItem | None)] = None
    """The agent, or its name in the registry. Without it, the file is a chain of proxies, for
    `chain:` in other files."""
    registry: Annotated[
        str | None,
        registry_source,
        Key(convert=_registry_source),
    ] = None
    """A file or URL with the registry that names are looked up in; without it, the ACP registry."""
    mcp_bridge: Annotated[McpBridgeMode, Key(merged=True)] = "auto"
    """How an agent is connected to MCP servers that proxies offer: `auto` asks its capabilities."""
    mcp: Annotated[McpStart, Key(merged=True)] = McpStart()
    """MCP servers over ACP, and those that the conductor connects to, that do not start."""
    limits: Annotated[Limits, Key(merged=True)] = Limits()
    """Limits of memory and work of one chain."""
    adapt: Annotated[Mapping[str, Adaptation], Key(written=AdaptItem)] = {}
    """Proxies that are inserted where client and agent do not fit; docs/adapters.md."""
    on_start_failure: OnStartFailure | None = None
    """Form in which `run` reports a failed start: in the chat, or as an error; without it, the
    command decides."""
    prewarm: bool = False
    """Whether `run` starts the programs of the chain before the client sends `initialize`."""


class ChainFile(FileItem, frozen=True, kw_only=True):
    """A chain: its proxies, the first one nearest the client, and its agent.

    Without an agent it is a proxy chain, usable in other chains. `path` is the file as the user
    named it; `adapt` has the settings of adapters by name, those without one have the default.
    """

    path: str
    given: frozenset[ValuePath] = frozenset()
    """The settings with `Key.merged` that the file contains, as key or as key and member."""

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
        return _PROCESSES if agent.program_names & _SHARED_SERVERS else 0

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
