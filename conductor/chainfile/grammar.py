"""Grammar of chain files: the keys, their types, defaults and validators.

One attribute per key (`with` is `options`), annotated with its validator. The classes describe the
file as written; `validators` checks single values, `key_conflicts` which keys may stand together,
`struct_fields` reads a mapping as one of the classes, `loader` loads nested chains, `build` derives
names and absolute paths. docs/development/changes.md lists what a new key needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from conductor.chainfile.converter import make_converter
from conductor.chainfile.key_conflicts import KEY_HINTS, key_conflicts
from conductor.chainfile.model import (
    CANCEL_TIMEOUT,
    START_TIMEOUT,
    STOP_TIMEOUT,
    AdaptMode,
    Dialect,
    Limits,
    McpBridgeMode,
    OnCancelTimeout,
    OnFailure,
    OnStall,
    OnStartFailure,
    RestartBudget,
)
from conductor.chainfile.scalars import Argv, Bytes, Seconds, seconds
from conductor.chainfile.struct_fields import is_struct, struct_hook
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.validators import (
    argv,
    component_name,
    environment_names,
    host_name,
    http_headers,
    nonempty_path,
    nonempty_paths,
    not_negative,
    plugin_name,
    positive,
    registry_name,
    registry_source,
    url,
    workspace_paths,
)
from conductor.chainfile.value_errors import InvalidValue, ValueIssue, collect, expected, invalid

__all__ = ["AgentItem", "ComponentItem", "FileItem", "file_converter"]

_VARIABLE = r"[^\d\s=][^\s=]*"
_RESTARTS = r"([0-9]{1,6}) in (.+)"


def _certificate_key(tls: TlsItem, _: Any, value: str | None) -> None:
    nonempty_path(tls, _, value)
    if value is not None and tls.cert is None:
        raise invalid("`key` needs a certificate", "add `cert`")


class TlsItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The `tls:` mapping of a component."""

    ca: Annotated[str | None, nonempty_path] = None
    cert: Annotated[str | None, nonempty_path] = None
    key: Annotated[str | None, _certificate_key] = None
    server_name: Annotated[str | None, host_name] = None
    verify: bool = True


class SandboxItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The `sandbox:` mapping of a component."""

    workspaces: Annotated[list[str] | dict[str, str], workspace_paths] = []
    read: Annotated[list[str], nonempty_paths] = []
    write: Annotated[list[str], nonempty_paths] = []
    hide: Annotated[list[str], nonempty_paths] = []
    network: bool = True
    pass_env: list[str] = []


def _agents_sandbox(item: ComponentItem, _: Any, value: SandboxItem | bool) -> None:
    mapped = isinstance(value, SandboxItem) and isinstance(value.workspaces, dict)
    if mapped and not isinstance(item, AgentItem):
        message = "only an agent can see a workspace at another path"
        path = ("workspaces",)
        raise InvalidValue([ValueIssue(message, "write a list of paths", path=path)])


def _environment_conditions(_: Any, __: Any, value: list[str] | str | None) -> None:
    for text in [value] if isinstance(value, str) else value or ():
        if re.fullmatch(_VARIABLE, text.partition("=")[0]) is None:
            raise expected("the name of a variable, or `NAME=VALUE`")


class WhenItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The `when:` mapping of a proxy."""

    client: list[str] | str | None = None
    agent: list[str] | str | None = None
    cwd: list[str] | str | None = None
    capability: list[str] | str | None = None
    env: Annotated[list[str] | str | None, _environment_conditions] = None


def _conditions_of_a_proxy(item: ComponentItem, _: Any, value: WhenItem | None) -> None:
    if value is None:
        return
    if isinstance(item, AgentItem):
        raise invalid("an agent has no `when`: a chain cannot do without it")
    keys = value.__struct_fields__
    if not any(getattr(value, key) for key in keys):
        *most, last = (f"`{key}`" for key in keys)
        raise invalid("`when` has no condition", f"add {', '.join(most)} or {last}")


class ComponentItem(
    msgspec.Struct, frozen=True, kw_only=True, eq=False, rename={"options": "with"}
):
    """A component: an item of `proxies:`."""

    name: Annotated[str | None, component_name] = None
    run: Annotated[Argv | None, argv] = None
    use: Annotated[str | None, plugin_name] = None
    """A ready-made or installed proxy or agent by its name, or a class in a file:
    `./file.py:Class`."""
    registry: Annotated[str | None, registry_name] = None
    install_scripts: bool = False
    """Whether packages of the registry may run programs when they are installed."""
    connect: Annotated[str | None, url] = None
    unix: Annotated[str | None, nonempty_path] = None
    chain: Annotated[str | None, nonempty_path] = None
    """Another chain file: its proxies stand in this place."""
    options: dict[str, Any] = {}
    """Options of the component that `use` names; `acp-conductor components NAME` lists them."""
    env: Annotated[dict[str, str], environment_names] = {}
    """Environment variables of its process."""
    secrets: tuple[str, ...] = ()
    inherit_env: bool = True
    cwd: Annotated[str | None, nonempty_path] = None
    sandbox: Annotated[SandboxItem | bool, _agents_sandbox] = False
    isolate: bool = False
    ssh: Annotated[str | None, host_name] = None
    headers: Annotated[dict[str, str], http_headers] = {}
    tls: TlsItem | None = None
    ping_timeout: Annotated[Seconds, positive] = 30.0
    dialect: Dialect | None = None
    start_timeout: Annotated[Seconds, positive] = START_TIMEOUT
    stop_timeout: Seconds = STOP_TIMEOUT
    request_timeout: Annotated[dict[str, Seconds], positive] = {}
    stall_timeout: Annotated[Seconds | None, positive] = None
    on_stall: OnStall = "report"
    on_cancel_timeout: OnCancelTimeout = "answer"
    on_failure: OnFailure | None = None
    restarts: RestartBudget | None = None
    required: bool = False
    when: Annotated[WhenItem | None, _conditions_of_a_proxy] = None


class AgentItem(ComponentItem, frozen=True, kw_only=True, eq=False):
    """The `agent:`. It cannot be bypassed, because it has no successor."""

    on_failure: Literal["restart", "end_chain"] | None = None
    cancel_timeout: Annotated[Seconds, positive] = CANCEL_TIMEOUT
    session_processes: Annotated[int | None, not_negative] = None


_KEYS = frozenset(AgentItem.__struct_encode_fields__)
_LIMITS = Limits()


class LimitsItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """`limits:` as it is written."""

    max_message_bytes: Annotated[Bytes, positive] = _LIMITS.max_message_bytes
    max_open_requests: Annotated[int, positive] = _LIMITS.max_open_requests
    max_batch: Annotated[int, positive] = _LIMITS.max_batch
    max_buffered_bytes: Annotated[Bytes, positive] = _LIMITS.max_buffered_bytes
    max_sessions: Annotated[int, positive] = _LIMITS.max_sessions
    max_mcp_connections: Annotated[int, positive] = _LIMITS.max_mcp_connections
    max_session_log_bytes: Annotated[Bytes, positive] = _LIMITS.max_session_log_bytes
    max_initialize_bytes: Annotated[Bytes, positive] = _LIMITS.max_initialize_bytes


class McpItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """`mcp:` as it is written."""

    required: bool = False
    """Whether a session fails if an MCP server does not start; else it is left out with a
    notice."""
    start_timeout: Annotated[Seconds, positive] = START_TIMEOUT
    """The time in which an MCP server must answer the agent."""


class AdapterItem(msgspec.Struct, frozen=True, kw_only=True, eq=False, rename={"options": "with"}):
    """An adapter with options."""

    mode: AdaptMode = "auto"
    """`auto`: inserted if client and agent need it; `always`; `never`."""
    options: dict[str, Any] = {}
    """The options of the proxy of this name."""


class AdaptItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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


class FileItem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A chain file as it is written."""

    version: Literal[1] = 1
    """The version of this format."""
    name: Annotated[str | None, component_name] = None
    """Shown in logs, traces and `ps`; without it, the name of the file."""
    proxies: tuple[ComponentItem, ...] = ()
    """The proxies; the first is nearest the editor."""
    agent: AgentItem | None = None
    """The agent, or its name in the registry. Without it, the file is a chain of proxies, for
    `chain:` in other files."""
    registry: Annotated[str | None, registry_source] = None
    """A file or URL with the registry that names are looked up in; without it, the ACP registry."""
    mcp_bridge: McpBridgeMode = "auto"
    """How an agent is connected to MCP servers that proxies offer: `auto` asks its capabilities."""
    mcp: McpItem = msgspec.field(default_factory=McpItem)
    """MCP servers over ACP, and those that the conductor connects to, that do not start."""
    limits: LimitsItem = msgspec.field(default_factory=LimitsItem)
    """Limits of memory and work of one chain."""
    adapt: AdaptItem = msgspec.field(default_factory=AdaptItem)
    """Proxies that are inserted where client and agent do not fit; docs/adapters.md."""
    on_start_failure: OnStartFailure | None = None
    prewarm: bool = False
    """Whether `run` starts the programs of the chain before the client sends `initialize`."""


def file_converter(directory: str) -> Converter:
    """A converter for `FileItem`."""
    converter = make_converter(directory, "key", {RestartBudget: _restart_budget})
    converter.rules[:0] = [  # make only the hooks that the file needs
        (lambda cls: cls in (ComponentItem, AgentItem), lambda cls: _item_hook(cls, converter)),
        (is_struct, lambda cls: struct_hook(cls, converter)),
    ]
    return converter


def _restart_budget(value: Any) -> RestartBudget:
    found = re.fullmatch(_RESTARTS, value) if isinstance(value, str) else None
    if not found:
        raise expected("a budget such as `3 in 60s`")
    try:
        within = seconds(found[2])
    except ValueError:
        within = 0.0
    if within <= 0:
        raise expected("a budget such as `3 in 60s`")
    return RestartBudget(int(found[1]), within)


def _item_hook(cls: type[ComponentItem], converter: Converter) -> Hook:
    read = struct_hook(cls, converter, KEY_HINTS)

    def hook(data: Any) -> ComponentItem:
        if isinstance(data, str) and cls is AgentItem:
            registry_name(None, None, data)
            data = {"registry": data}
        if not isinstance(data, Mapping):
            raise expected("a component", lambda written: "write `use: …` or `run: […]`")
        found = key_conflicts(data, _KEYS)
        item: ComponentItem = collect(found, (), read, data)
        if found:
            raise InvalidValue(found)
        return item

    return hook
