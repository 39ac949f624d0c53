"""Repair of the params that set up a session: directories and declarations of MCP servers.

Users copy declarations from the settings of other programs, and clients pass them on as they are:
an object by name, `env` as an object, `type: streamable-http`; Lua writes an empty list as `{}`.
Strict agents refuse them, others leave the server out. Well-formed params stay as they are.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["repair_set_up"]

_TYPES: Final = {
    **dict.fromkeys(("stdio", "local", "command"), "stdio"),
    **dict.fromkeys(("http", "streamablehttp", "httpstream", "remote"), "http"),
    "sse": "sse",
    "acp": "acp",
}
"""Types by their name in lower case without `-` and `_`."""
_OTHER_NAMES: Final = {
    "transport": "type",
    "transportType": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "cmd": "command",
}


def repair_set_up(params: dict[str, Any], version: int, *, required: bool, cwd: str | None) -> None:
    """Make params, in place, what the schema of this version says.

    `required`: whether `mcpServers` must be there. `cwd` is the directory that relative ones are
    below, and the one of a session without; `None` if it is unknown.
    """
    if cwd is not None:
        given = params.get("cwd")
        if given is None or (isinstance(given, str) and not os.path.isabs(given)):
            params["cwd"] = os.path.normpath(os.path.join(cwd, os.path.expanduser(given or "")))
        if isinstance(listed := params.get("additionalDirectories"), list):
            base = str(params["cwd"])
            params["additionalDirectories"] = [
                os.path.normpath(os.path.join(base, os.path.expanduser(each)))
                if isinstance(each, str) and not os.path.isabs(each)
                else each
                for each in listed
            ]
    if params.get("additionalDirectories", ()) in (None, {}):
        del params["additionalDirectories"]
    if "mcpServers" in params or (required and version == 1):
        params["mcpServers"] = _servers(params.get("mcpServers"), version)


def _servers(given: Any, version: int) -> Any:
    if given is None:
        return []
    if isinstance(given, Mapping):
        if set(given) == {"mcpServers"}:  # a whole file of settings
            return _servers(given["mcpServers"], version)
        if isinstance(given.get("command", given.get("url")), str | list):  # one server
            given = [given]
        else:
            given = [
                {"name": name, **each} if isinstance(each, Mapping) else each
                for name, each in given.items()
            ]
    if not isinstance(given, list):
        return given
    enabled = [each for each in given if not (isinstance(each, Mapping) and _is_off(each))]
    return [_server(each, version) if isinstance(each, Mapping) else each for each in enabled]


def _is_off(server: Mapping[str, Any]) -> bool:
    return server.get("disabled") is True or server.get("enabled") is False


def _server(given: Mapping[str, Any], version: int) -> dict[str, Any]:
    server = dict(given)
    for other, name in _OTHER_NAMES.items():
        if name not in server and isinstance(server.get(other), str | list | Mapping):
            server[name] = server.pop(other)
    told = str(server.get("type") or "").lower().replace("-", "").replace("_", "")
    kind = _TYPES.get(told, server.get("type") or None)
    if kind is None:
        is_sse = str(server.get("url") or "").split("?")[0].rstrip("/").endswith("/sse")
        kind = ("sse" if is_sse else "http") if "url" in server else "stdio"
    if kind == "stdio":
        _repair_program(server)
    elif kind in ("http", "sse"):
        server["headers"] = _pairs(server.get("headers"))
    if "name" not in server:
        source = str(server.get("command") or server.get("url") or "server")
        server["name"] = os.path.basename(source.rstrip("/")) or source
    if kind == "stdio" and version == 1:
        server.pop("type", None)
    elif server.get("type") != kind:
        server = {"type": kind, **{name: each for name, each in server.items() if name != "type"}}
    return server


def _repair_program(server: dict[str, Any]) -> None:
    command, args = server.get("command"), server.get("args")
    if isinstance(args, str):
        args = shlex.split(args)
    args = [_text(each) for each in args] if isinstance(args, list) else []
    if isinstance(command, list) and command:
        command, args = _text(command[0]), [*map(_text, command[1:]), *args]
        server["command"] = command
    server["args"] = args
    server["env"] = _pairs(server.get("env"))


def _pairs(given: Any) -> Any:
    """Variables or headers as a list of names and values."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [{"name": k, "value": _text(v)} for k, v in given.items() if v is not None]
    if not isinstance(given, list):
        return given
    return [_pair(each) for each in given]


def _pair(given: Any) -> Any:
    if isinstance(given, str) and "=" in given:
        name, _, value = given.partition("=")
        return {"name": name, "value": value}
    if not isinstance(given, Mapping):
        return given
    if "name" not in given and isinstance(given.get("key"), str):
        given = {"name": given["key"], **{k: v for k, v in given.items() if k != "key"}}
    if "value" in given and not isinstance(given["value"], str):
        return {**given, "value": _text(given["value"])}
    return given


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
