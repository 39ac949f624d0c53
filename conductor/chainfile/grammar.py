"""Grammar of chain files: keys, types, defaults, validators and keys that exclude each other.

One attribute per key (`with` is `options`, alias `with_`). The classes describe the file as
written; `loader` loads nested chains, `build` derives names and absolute paths. A new key is added
here, in `model.ComponentSpec`, in `build` and in `conductor.cli.show`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import cattrs

from conductor.chainfile.attrs_fields import attrs_hook, field_key
from conductor.chainfile.converter import make_converter
from conductor.chainfile.diagnostics import closest_match
from conductor.chainfile.model import (
    CANCEL_TIMEOUT,
    START_TIMEOUT,
    STOP_TIMEOUT,
    Dialect,
    Limits,
    McpBridge,
    OnCancelTimeout,
    OnFailure,
    OnStall,
    OnStartFailure,
    RestartBudget,
)
from conductor.chainfile.scalars import Argv, Bytes, Seconds, seconds
from conductor.chainfile.value_errors import InvalidValue, ValueIssue, collect, expected, invalid

__all__ = ["COMPONENT_KINDS", "AgentItem", "ComponentItem", "FileItem", "file_converter"]

COMPONENT_KINDS = ("run", "use", "registry", "connect", "unix", "chain")
_QUOTED_KINDS = tuple(f"`{kind}`" for kind in COMPONENT_KINDS)

_HINTS = {
    **dict.fromkeys(("command", "cmd", "args", "argv", "exec"), "did you mean `run`?"),
    **dict.fromkeys(("url", "uri"), "did you mean `connect`?"),
    **dict.fromkeys(("plugin", "class", "proxy"), "did you mean `use`?"),
    **dict.fromkeys(("options", "config", "settings"), "did you mean `with`?"),
    "environment": "did you mean `env`?",
    **dict.fromkeys(("bwrap", "bubblewrap", "container"), "did you mean `sandbox`?"),
    **dict.fromkeys(("npx", "uvx", "package"), "did you mean `run`, or `registry`?"),
    **dict.fromkeys(("socket", "uds"), "did you mean `unix`?"),
    **dict.fromkeys(("host", "remote"), "did you mean `ssh`, or `connect`?"),
}
# Keys that do not apply to a kind of component.
_STORE_KEYS = {"install_scripts"}
_PROGRAM_KEYS = {"with", "isolate", "env", "inherit_env", "cwd", "ssh", "sandbox"} | _STORE_KEYS
_CONNECTION_KEYS = {"headers", "tls", "ping_timeout"}
_INAPPLICABLE_KEYS = {
    "run": {"with", "isolate"} | _CONNECTION_KEYS | _STORE_KEYS,
    "use": {"ssh", "sandbox"} | _CONNECTION_KEYS | _STORE_KEYS,
    "registry": {"with", "isolate", "ssh"} | _CONNECTION_KEYS,
    "connect": _PROGRAM_KEYS,
    "unix": _PROGRAM_KEYS | _CONNECTION_KEYS,
}
_INAPPLICABLE_WITH_SSH = {
    "with",
    "isolate",
    "inherit_env",
    "headers",
    "tls",
    "sandbox",
} | _STORE_KEYS
_SSH_ENVIRONMENT_HELP = (
    "the program gets the environment of the other machine, and of `env` what its sshd accepts"
)
_CHAIN_KEYS = {"name", "chain"}
_REGISTRY_NAME = re.compile(r"[a-z][a-z0-9-]*")
_PATH_AND_CLASS = re.compile(r".+\.py:[^\W\d]\w*")
_RESTARTS = re.compile(r"([0-9]{1,6}) in (.+)")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_RESERVED_HEADERS = {
    *("host", "connection", "upgrade", "content-length", "content-type", "transfer-encoding"),
    *("accept", "te", "trailer", "acp-connection-id", "acp-session-id"),
}


def _positive(_: Any, __: Any, value: float | int | Mapping[str, float] | None) -> None:
    if isinstance(value, Mapping):
        found: list[ValueIssue] = []
        for key, each in value.items():
            collect(found, (key,), _positive, None, None, each)
        if found:
            raise InvalidValue(found)
    elif value is not None and value <= 0:
        raise invalid("must be more than zero")


def _name(_: Any, __: Any, value: str | None) -> None:
    if value is not None and (not value.strip() or "/" in value or not value.isprintable()):
        raise expected("a name without `/`")


def _argv(_: Any, __: Any, value: tuple[str, ...] | None) -> None:
    if value == ():
        raise invalid("the command is empty")
    if value and not value[0]:
        raise InvalidValue([ValueIssue("the command is empty", path=(0,))])


def _plugin_name(_: Any, __: Any, value: str | None) -> None:
    if value is None:
        return
    looks_like_a_path = "/" in value or ":" in value or value.endswith(".py")
    if looks_like_a_path and not _PATH_AND_CLASS.fullmatch(value):
        raise expected("a name or `path.py:Class`", "name the class of the file: `./file.py:Class`")
    if not value.strip():
        raise expected("a name or `path.py:Class`", "`acp-conductor components` lists the names")


def _registry_name(_: Any, __: Any, value: str | None) -> None:
    if value is not None and not _REGISTRY_NAME.fullmatch(value):
        help = "`acp-conductor registry list` lists the names; a command is written `run: […]`"
        raise expected("a name of the registry such as `claude-acp`", help)


def _registry_source(_: Any, __: Any, value: str | None) -> None:
    if value is None or (value and not value.startswith(("http://", "ftp://", "file://"))):
        return
    if value.startswith("http://"):
        from urllib.parse import urlsplit

        if urlsplit(value).hostname in ("localhost", "127.0.0.1", "::1"):
            return
    raise expected("a file, or a URL that begins with `https://`")


def _url(_: Any, __: Any, value: str | None) -> None:
    if value is None:
        return
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("ws", "wss", "http", "https") and parts.port != 0
        usable = usable and bool(parts.hostname) and not parts.fragment
    except ValueError:
        usable = False
    if not usable or not value.isprintable() or " " in value:
        raise expected("a URL such as `wss://proxy.example.org/acp`")


def _nonempty_path(_: Any, __: Any, value: str | None) -> None:
    if value is not None and not value:
        raise invalid("the path is empty")


def _environment(_: Any, __: Any, value: Mapping[str, str]) -> None:
    found = [
        ValueIssue(
            f"`{name}` cannot be the name of an environment variable", path=(name,), at_key=True
        )
        for name in value
        if not name or "=" in name
    ]
    if found:
        raise InvalidValue(found)


def _host(_: Any, __: Any, value: str | None) -> None:
    if value is None:
        return
    if not value or value.startswith("-") or not value.isprintable() or " " in value:
        raise expected("a host such as `user@host`", "as the program `ssh` understands it")


def _headers(_: Any, __: Any, value: Mapping[str, str]) -> None:
    found = []
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            message = f"`{name}` cannot be the name of a header"
            found.append(ValueIssue(message, path=(name,), at_key=True))
        elif name.lower() in _RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            message = f"the header `{name}` belongs to the connection and cannot be given"
            found.append(ValueIssue(message, path=(name,), at_key=True))
        elif not _HEADER_VALUE.fullmatch(text):
            message = "the value of a header is one line of ASCII"
            found.append(ValueIssue(message, path=(name,)))
    if found:
        raise InvalidValue(found)


def _certificate_key(tls: TlsItem, _: Any, value: str | None) -> None:
    _nonempty_path(tls, _, value)
    if value is not None and tls.cert is None:
        raise invalid("`key` needs a certificate", "add `cert`")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TlsItem:
    """The `tls:` mapping of a component."""

    ca: str | None = attrs.field(default=None, validator=_nonempty_path)
    cert: str | None = attrs.field(default=None, validator=_nonempty_path)
    key: str | None = attrs.field(default=None, validator=_certificate_key)
    server_name: str | None = attrs.field(default=None, validator=_host)
    verify: bool = True


def _paths(_: Any, __: Any, value: Sequence[str]) -> None:
    found = [
        ValueIssue("the path is empty", path=(index,))
        for index, path in enumerate(value)
        if not path
    ]
    if found:
        raise InvalidValue(found)


def _workspaces(_: Any, __: Any, value: list[str] | dict[str, str]) -> None:
    if not isinstance(value, dict):
        _paths(_, __, value)
        return
    found = []
    for outside, inside in value.items():
        if not outside:
            found.append(ValueIssue("the path is empty", path=(outside,), at_key=True))
        if not inside.startswith("/") or os.path.normpath(inside) == "/":
            message = "expected an absolute path such as `/workspace`"
            found.append(ValueIssue(message, path=(outside,), quote=True))
    if found:
        raise InvalidValue(found)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SandboxItem:
    """The `sandbox:` mapping of a component."""

    workspaces: list[str] | dict[str, str] = attrs.field(factory=list, validator=_workspaces)
    read: list[str] = attrs.field(factory=list, validator=_paths)
    write: list[str] = attrs.field(factory=list, validator=_paths)
    hide: list[str] = attrs.field(factory=list, validator=_paths)
    network: bool = True
    pass_env: list[str] = attrs.field(factory=list)


def _agents_sandbox(item: ComponentItem, _: Any, value: SandboxItem | bool) -> None:
    mapped = isinstance(value, SandboxItem) and isinstance(value.workspaces, dict)
    if mapped and not isinstance(item, AgentItem):
        message = "only an agent can see a workspace at another path"
        path = ("workspaces",)
        raise InvalidValue([ValueIssue(message, "write a list of paths", path=path)])


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComponentItem:
    """A component: an item of `proxies:`."""

    name: str | None = attrs.field(default=None, validator=_name)
    run: Argv | None = attrs.field(default=None, validator=_argv)
    use: str | None = attrs.field(default=None, validator=_plugin_name)
    registry: str | None = attrs.field(default=None, validator=_registry_name)
    install_scripts: bool = False
    """Whether packages of the registry may run programs when they are installed."""
    connect: str | None = attrs.field(default=None, validator=_url)
    unix: str | None = attrs.field(default=None, validator=_nonempty_path)
    chain: str | None = attrs.field(default=None, validator=_nonempty_path)
    options: dict[str, Any] = attrs.field(factory=dict, alias="with_")
    env: dict[str, str] = attrs.field(factory=dict, validator=_environment)
    secrets: tuple[str, ...] = ()
    inherit_env: bool = True
    cwd: str | None = attrs.field(default=None, validator=_nonempty_path)
    sandbox: SandboxItem | bool = attrs.field(default=False, validator=_agents_sandbox)
    isolate: bool = False
    ssh: str | None = attrs.field(default=None, validator=_host)
    headers: dict[str, str] = attrs.field(factory=dict, validator=_headers)
    tls: TlsItem | None = None
    ping_timeout: Seconds = attrs.field(default=30.0, validator=_positive)
    dialect: Dialect | None = None
    start_timeout: Seconds = attrs.field(default=START_TIMEOUT, validator=_positive)
    stop_timeout: Seconds = STOP_TIMEOUT
    request_timeout: dict[str, Seconds] = attrs.field(factory=dict, validator=_positive)
    stall_timeout: Seconds | None = attrs.field(default=None, validator=_positive)
    on_stall: OnStall = "report"
    on_cancel_timeout: OnCancelTimeout = "answer"
    on_failure: OnFailure | None = None
    restarts: RestartBudget | None = None
    required: bool = False


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AgentItem(ComponentItem):
    """The `agent:`. It cannot be bypassed, because it has no successor."""

    on_failure: Literal["restart", "end_chain"] | None = None
    cancel_timeout: Seconds = attrs.field(default=CANCEL_TIMEOUT, validator=_positive)


_KEYS = {field_key(field) for field in attrs.fields(AgentItem)}
_LIMITS = Limits()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LimitsItem:
    """`limits:` as it is written."""

    max_message_bytes: Bytes = attrs.field(default=_LIMITS.max_message_bytes, validator=_positive)
    max_open_requests: int = attrs.field(default=_LIMITS.max_open_requests, validator=_positive)
    max_batch: int = attrs.field(default=_LIMITS.max_batch, validator=_positive)
    max_buffered_bytes: Bytes = attrs.field(default=_LIMITS.max_buffered_bytes, validator=_positive)
    max_sessions: int = attrs.field(default=_LIMITS.max_sessions, validator=_positive)
    max_mcp_connections: int = attrs.field(default=_LIMITS.max_mcp_connections, validator=_positive)
    max_mcp_sessions: int = attrs.field(default=_LIMITS.max_mcp_sessions, validator=_positive)
    max_session_log_bytes: Bytes = attrs.field(
        default=_LIMITS.max_session_log_bytes, validator=_positive
    )
    max_initialize_bytes: Bytes = attrs.field(
        default=_LIMITS.max_initialize_bytes, validator=_positive
    )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class McpItem:
    """`mcp:` as it is written."""

    required: bool = False
    """Whether a session fails if an MCP server does not start; else it is left out with a
    notice."""
    start_timeout: Seconds = attrs.field(default=START_TIMEOUT, validator=_positive)
    """The time in which an MCP server must answer the agent."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class FileItem:
    """A chain file as it is written."""

    version: Literal[1] = 1
    """The version of this format."""
    name: str | None = attrs.field(default=None, validator=_name)
    """Shown in logs, traces and `ps`; without it, the name of the file."""
    proxies: tuple[ComponentItem, ...] = ()
    """The proxies; the first is nearest the editor."""
    agent: AgentItem | None = None
    """The agent, or its name in the registry. Without it, the file is a chain of proxies, for
    `chain:` in other files."""
    registry: str | None = attrs.field(default=None, validator=_registry_source)
    """A file or URL with the registry that names are looked up in; without it, the ACP registry."""
    mcp_bridge: McpBridge = "auto"
    """How an agent is connected to MCP servers that proxies offer: `auto` asks its capabilities."""
    mcp: McpItem = attrs.field(factory=McpItem)
    """MCP servers over ACP, and those that the conductor connects to, that do not start."""
    limits: LimitsItem = attrs.field(factory=LimitsItem)
    """Limits of memory and work of one chain."""
    on_start_failure: OnStartFailure | None = None


def file_converter(directory: str) -> cattrs.Converter:
    """A converter for `FileItem`."""
    converter = make_converter(directory, "key")
    converter.register_structure_hook(RestartBudget, _restart_budget)
    for cls in (ComponentItem, AgentItem):
        converter.register_structure_hook(cls, _item_hook(cls, converter))
    return converter


def _restart_budget(value: Any, _: Any) -> RestartBudget:
    found = _RESTARTS.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise expected("a budget such as `3 in 60s`")
    try:
        within = seconds(found[2])
    except ValueError:
        within = 0.0
    if within <= 0:
        raise expected("a budget such as `3 in 60s`")
    return RestartBudget(int(found[1]), within)


def _item_hook(
    cls: type[ComponentItem], converter: cattrs.Converter
) -> Callable[[Any, Any], ComponentItem]:
    read = attrs_hook(cls, converter, "key", _HINTS)

    def hook(data: Any, _: Any) -> ComponentItem:
        if isinstance(data, str) and cls is AgentItem:
            _registry_name(None, None, data)
            data = {"registry": data}
        if not isinstance(data, Mapping):
            raise expected("a component", lambda written: "write `use: …` or `run: […]`")
        found = _key_conflicts(data)
        item: ComponentItem = collect(found, (), read, data, cls)
        if found:
            raise InvalidValue(found)
        return item

    return hook


def _key_conflicts(data: Mapping[str, Any]) -> list[ValueIssue]:
    """Issues about keys of one component that are missing or exclude each other."""
    kinds = [key for key in data if key in COMPONENT_KINDS]
    found = [
        ValueIssue(
            f"`{kinds[0]}` and `{other}` exclude each other",
            path=(other,),
            at_key=True,
            note=((kinds[0],), "the component is given here already"),
        )
        for other in kinds[1:]
    ]
    if not kinds:
        # A misspelt kind is reported as an unknown key; do not report it twice.
        meant = [_HINTS.get(key) or f"`{closest_match(key, _KEYS)}`" for key in data]
        if "ssh" in data:
            help = "add the command: `run: […]`"
            found.append(
                ValueIssue("`ssh` says where, not what to run", help, path=("ssh",), at_key=True)
            )
        elif not any(word in hint for hint in meant for word in _QUOTED_KINDS):
            *most, last = _QUOTED_KINDS
            found.append(ValueIssue(f"a component needs one of {', '.join(most)} and {last}"))
    found += [
        ValueIssue("expected a value", path=(kind,), quote=True)
        for kind in kinds
        if data[kind] is None
    ]
    if len(kinds) == 1:
        found += _inapplicable_keys(kinds[0], data)
        found += _tls_without_encryption(data)
    if (
        data.get("on_cancel_timeout") == "restart"
        and kinds == ["use"]
        and data.get("isolate") not in ("true", "yes", "on")
        and data.get("on_failure") != "restart"
    ):
        help = "add `isolate: true` or `on_failure: restart`"
        message = "a plugin in this process cannot be restarted by itself"
        found.append(ValueIssue(message, help, path=("on_cancel_timeout",)))
    if data.get("on_failure") == "bypass" and data.get("required") in ("true", "yes", "on"):
        note = (("required",), "the chain must not run without this component")
        found.append(
            ValueIssue("a required component is never bypassed", path=("on_failure",), note=note)
        )
    return found


def _inapplicable_keys(kind: str, data: Mapping[str, Any]) -> list[ValueIssue]:
    if kind == "run" and "ssh" in data:
        kind, meaningless, help = "ssh", _INAPPLICABLE_WITH_SSH, _SSH_ENVIRONMENT_HELP
    elif kind == "chain":
        meaningless = _KEYS - _CHAIN_KEYS
        help = "a nested chain takes its settings from its own file"
    else:
        meaningless, help = _INAPPLICABLE_KEYS[kind], None
    return [
        ValueIssue(
            f"`{key}` has no meaning beside `{kind}`",
            help,
            path=(key,),
            at_key=True,
            note=((kind,), "the component is given here"),
        )
        for key in data
        if key in meaningless
    ]


def _tls_without_encryption(data: Mapping[str, Any]) -> list[ValueIssue]:
    url = data.get("connect")
    scheme = url.partition("://")[0] if isinstance(url, str) else None
    if "tls" not in data or scheme not in ("ws", "http"):
        return []
    note = (("connect",), "this connection is not encrypted")
    message = f"`tls` has no meaning for `{scheme}://`"
    help = f"write `{scheme}s://…`"
    return [ValueIssue(message, help, path=("tls",), at_key=True, note=note)]
