"""Grammar of chain files: the keys, their types, defaults and validators.

One attribute per key (`with` is `options`, alias `with_`). The classes describe the file as
written; `validators` checks single values, `key_conflicts` which keys may stand together, `loader`
loads nested chains, `build` derives names and absolute paths. A new key is added
here, in `model.ComponentSpec`, in `build` and in `conductor.cli.show`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from conductor.chainfile.attrs_fields import attrs_hook, field_key
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
from conductor.chainfile.type_dispatch import Converter, Hook
from conductor.chainfile.validators import (
    argv,
    component_name,
    environment_names,
    host_name,
    http_headers,
    nonempty_path,
    nonempty_paths,
    plugin_name,
    positive,
    registry_name,
    registry_source,
    url,
    workspace_paths,
)
from conductor.chainfile.value_errors import InvalidValue, ValueIssue, collect, expected, invalid

__all__ = ["AgentItem", "ComponentItem", "FileItem", "file_converter"]

_RESTARTS = r"([0-9]{1,6}) in (.+)"


def _certificate_key(tls: TlsItem, _: Any, value: str | None) -> None:
    nonempty_path(tls, _, value)
    if value is not None and tls.cert is None:
        raise invalid("`key` needs a certificate", "add `cert`")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TlsItem:
    """The `tls:` mapping of a component."""

    ca: str | None = attrs.field(default=None, validator=nonempty_path)
    cert: str | None = attrs.field(default=None, validator=nonempty_path)
    key: str | None = attrs.field(default=None, validator=_certificate_key)
    server_name: str | None = attrs.field(default=None, validator=host_name)
    verify: bool = True


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SandboxItem:
    """The `sandbox:` mapping of a component."""

    workspaces: list[str] | dict[str, str] = attrs.field(factory=list, validator=workspace_paths)
    read: list[str] = attrs.field(factory=list, validator=nonempty_paths)
    write: list[str] = attrs.field(factory=list, validator=nonempty_paths)
    hide: list[str] = attrs.field(factory=list, validator=nonempty_paths)
    network: bool = True
    pass_env: list[str] = attrs.field(factory=list)


def _agents_sandbox(item: ComponentItem, _: Any, value: SandboxItem | bool) -> None:
    mapped = isinstance(value, SandboxItem) and isinstance(value.workspaces, dict)
    if mapped and not isinstance(item, AgentItem):
        message = "only an agent can see a workspace at another path"
        path = ("workspaces",)
        raise InvalidValue([ValueIssue(message, "write a list of paths", path=path)])


def _environment_conditions(_: Any, __: Any, value: list[str] | str | None) -> None:
    for text in [value] if isinstance(value, str) else value or ():
        if not text.partition("=")[0]:
            raise expected("the name of a variable, or `NAME=VALUE`")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class WhenItem:
    """The `when:` mapping of a proxy."""

    client: list[str] | str | None = None
    agent: list[str] | str | None = None
    cwd: list[str] | str | None = None
    capability: list[str] | str | None = None
    env: list[str] | str | None = attrs.field(default=None, validator=_environment_conditions)


def _not_for_an_agent(item: ComponentItem, _: Any, value: WhenItem | None) -> None:
    if value is not None and isinstance(item, AgentItem):
        raise invalid("an agent has no `when`: a chain cannot do without it")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComponentItem:
    """A component: an item of `proxies:`."""

    name: str | None = attrs.field(default=None, validator=component_name)
    run: Argv | None = attrs.field(default=None, validator=argv)
    use: str | None = attrs.field(default=None, validator=plugin_name)
    registry: str | None = attrs.field(default=None, validator=registry_name)
    install_scripts: bool = False
    """Whether packages of the registry may run programs when they are installed."""
    connect: str | None = attrs.field(default=None, validator=url)
    unix: str | None = attrs.field(default=None, validator=nonempty_path)
    chain: str | None = attrs.field(default=None, validator=nonempty_path)
    options: dict[str, Any] = attrs.field(factory=dict, alias="with_")
    env: dict[str, str] = attrs.field(factory=dict, validator=environment_names)
    secrets: tuple[str, ...] = ()
    inherit_env: bool = True
    cwd: str | None = attrs.field(default=None, validator=nonempty_path)
    sandbox: SandboxItem | bool = attrs.field(default=False, validator=_agents_sandbox)
    isolate: bool = False
    ssh: str | None = attrs.field(default=None, validator=host_name)
    headers: dict[str, str] = attrs.field(factory=dict, validator=http_headers)
    tls: TlsItem | None = None
    ping_timeout: Seconds = attrs.field(default=30.0, validator=positive)
    dialect: Dialect | None = None
    start_timeout: Seconds = attrs.field(default=START_TIMEOUT, validator=positive)
    stop_timeout: Seconds = STOP_TIMEOUT
    request_timeout: dict[str, Seconds] = attrs.field(factory=dict, validator=positive)
    stall_timeout: Seconds | None = attrs.field(default=None, validator=positive)
    on_stall: OnStall = "report"
    on_cancel_timeout: OnCancelTimeout = "answer"
    on_failure: OnFailure | None = None
    restarts: RestartBudget | None = None
    required: bool = False
    when: WhenItem | None = attrs.field(default=None, validator=_not_for_an_agent)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentItem(ComponentItem):
    """The `agent:`. It cannot be bypassed, because it has no successor."""

    on_failure: Literal["restart", "end_chain"] | None = None
    cancel_timeout: Seconds = attrs.field(default=CANCEL_TIMEOUT, validator=positive)


_KEYS = {field_key(field) for field in attrs.fields(AgentItem)}
_LIMITS = Limits()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LimitsItem:
    """`limits:` as it is written."""

    max_message_bytes: Bytes = attrs.field(default=_LIMITS.max_message_bytes, validator=positive)
    max_open_requests: int = attrs.field(default=_LIMITS.max_open_requests, validator=positive)
    max_batch: int = attrs.field(default=_LIMITS.max_batch, validator=positive)
    max_buffered_bytes: Bytes = attrs.field(default=_LIMITS.max_buffered_bytes, validator=positive)
    max_sessions: int = attrs.field(default=_LIMITS.max_sessions, validator=positive)
    max_mcp_connections: int = attrs.field(default=_LIMITS.max_mcp_connections, validator=positive)
    max_mcp_sessions: int = attrs.field(default=_LIMITS.max_mcp_sessions, validator=positive)
    max_session_log_bytes: Bytes = attrs.field(
        default=_LIMITS.max_session_log_bytes, validator=positive
    )
    max_initialize_bytes: Bytes = attrs.field(
        default=_LIMITS.max_initialize_bytes, validator=positive
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class McpItem:
    """`mcp:` as it is written."""

    required: bool = False
    """Whether a session fails if an MCP server does not start; else it is left out with a
    notice."""
    start_timeout: Seconds = attrs.field(default=START_TIMEOUT, validator=positive)
    """The time in which an MCP server must answer the agent."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AdapterItem:
    """An adapter with options."""

    mode: AdaptMode = "auto"
    """`auto`: inserted if client and agent need it; `always`; `never`."""
    options: dict[str, Any] = attrs.field(factory=dict, alias="with_")
    """The options of the proxy of this name."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AdaptItem:
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
    notices: AdaptMode | AdapterItem | None = None
    """Notices of the agent, for a client that does not show them."""
    plan_approval: AdaptMode | AdapterItem | None = None
    """Plans are shown before their approval is asked for, for a client that shows titles only."""
    prompt_content: AdaptMode | AdapterItem | None = None
    """Images, audio and embedded resources, for an agent that takes only text."""
    queue: AdaptMode | AdapterItem | None = None
    """Prompts that wait for the end of a turn, for an agent that refuses them."""
    session_processes: AdaptMode | AdapterItem | None = None
    """A process of the agent for each session, for an agent that has one session."""
    subagents: AdaptMode | AdapterItem | None = None
    """Sessions of subagents, for a client that does not know them."""
    system_prompt: AdaptMode | AdapterItem | None = None
    """A system prompt of the client, for an agent that takes none."""
    turn_updates: AdaptMode | AdapterItem | None = None
    """Updates between turns are kept until the next one, for a client that mis-handles them."""
    v1_v2: AdaptMode | AdapterItem | None = None
    """Between a client of one version of the protocol and an agent of the other."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class FileItem:
    """A chain file as it is written."""

    version: Literal[1] = 1
    """The version of this format."""
    name: str | None = attrs.field(default=None, validator=component_name)
    """Shown in logs, traces and `ps`; without it, the name of the file."""
    proxies: tuple[ComponentItem, ...] = ()
    """The proxies; the first is nearest the editor."""
    agent: AgentItem | None = None
    """The agent, or its name in the registry. Without it, the file is a chain of proxies, for
    `chain:` in other files."""
    registry: str | None = attrs.field(default=None, validator=registry_source)
    """A file or URL with the registry that names are looked up in; without it, the ACP registry."""
    mcp_bridge: McpBridgeMode = "auto"
    """How an agent is connected to MCP servers that proxies offer: `auto` asks its capabilities."""
    mcp: McpItem = attrs.field(factory=McpItem)
    """MCP servers over ACP, and those that the conductor connects to, that do not start."""
    limits: LimitsItem = attrs.field(factory=LimitsItem)
    """Limits of memory and work of one chain."""
    adapt: AdaptItem = attrs.field(factory=AdaptItem)
    """Proxies that are inserted where client and agent do not fit; docs/adapters.md."""
    on_start_failure: OnStartFailure | None = None
    prewarm: bool = False
    """Whether programs of the chain start before a client asks: in `run` before `initialize`, in
    `serve` one process of each for the next client."""


def file_converter(directory: str) -> Converter:
    """A converter for `FileItem`."""
    converter = make_converter(directory, "key", {RestartBudget: _restart_budget})
    converter.rules.insert(  # makes only the hooks that the file needs: 2 ms
        0, (lambda cls: cls in (ComponentItem, AgentItem), lambda cls: _item_hook(cls, converter))
    )
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
    read = attrs_hook(cls, converter, "key", KEY_HINTS)

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
