"""Set-up of sessions, configuration options, modes and commands in protocol versions 1 and 2. Pure.

The modes of version 1 are a configuration option of category `mode` in version 2. A client of
version 1 gets that option both as an option and as modes, since it may know only one of them.
"""

from __future__ import annotations

from typing import Any, Final

from proxies.v1_v2.known_values import convert_blocks
from proxies.v1_v2.members import Json, each, objects, renamed, without

__all__ = [
    "convert_commands",
    "convert_options",
    "convert_setup_params",
    "mode_option",
    "modes_of_option",
    "option_of_modes",
    "set_option_params",
    "with_value",
]

_MODE: Final = "mode"
_OPTION_TYPES: Final = ("select", "boolean")


def convert_setup_params(params: Json, to_version: int) -> Json:
    """The params of `session/new`, `resume`, `load` and `fork`, without `replayFrom`."""
    changed = without(params, "replayFrom")
    if to_version == 1:
        changed.setdefault("mcpServers", [])
    changed = each(changed, "mcpServers", _server_to_v2 if to_version == 2 else _server_to_v1)
    changed = each(changed, "configOptions", lambda one: _initial_option(one, to_version))
    prompt = changed.get("systemPrompt")
    if isinstance(prompt, dict):
        content = convert_blocks(prompt.get("content"), to_version)
        changed["systemPrompt"] = {**prompt, "content": content}
    return changed


def _initial_option(option: Json, to_version: int) -> Json | None:
    """`None`: a value of another type, which version 1 does not have."""
    if to_version == 1 and option.get("type") not in ("id", "boolean"):
        return None
    return set_option_params(option, to_version)


def _server_to_v2(server: Json) -> Json:
    return server if "type" in server else {"type": "stdio", **server}


def _server_to_v1(server: Json) -> Json:
    match server.get("type"):
        case "stdio":
            return {"args": [], "env": [], **without(server, "type")}
        case "http":
            return {"headers": [], **server}
    return server


# -- configuration options -------------------------------------------------------------------------


def convert_options(options: Any, to_version: int) -> list[Json]:
    """A list of configuration options; version 1 has no other types than `select` and `boolean`."""
    if to_version == 2:
        return [_option(each, "id", "configId", "group", "groupId") for each in objects(options)]
    return [
        _option(option, "configId", "id", "groupId", "group")
        for option in objects(options)
        if option.get("type") in _OPTION_TYPES
    ]


def _option(option: Json, id: str, new_id: str, group: str, new_group: str) -> Json:
    changed = renamed(option, {id: new_id})
    return each(changed, "options", lambda entry: renamed(entry, {group: new_group}))


def set_option_params(params: Json, to_version: int) -> Json:
    """The params of `session/set_config_option`."""
    if to_version == 2:
        return params if "type" in params else {**params, "type": "id"}
    return without(params, "type") if params.get("type") == "id" else params


def with_value(options: list[Json], config_id: str, value: Any) -> list[Json]:
    """Options of version 2, one of them with another value."""
    return [
        {**each, "currentValue": value} if each.get("configId") == config_id else each
        for each in options
    ]


# -- modes -----------------------------------------------------------------------------------------


def mode_option(options: list[Json]) -> Json | None:
    """The option of version 2 that is the session's mode."""
    for option in options:
        if option.get("category") == _MODE and option.get("type") == "select":
            return option
    return None


def option_of_modes(modes: Any, options: list[Json]) -> Json | None:
    """The option of version 2 for the modes of version 1; `None` if there are none, or if one of
    the options of version 2 is the mode."""
    if not isinstance(modes, dict) or mode_option(options) is not None:
        return None
    if not objects(modes.get("availableModes")):
        return None
    values = [renamed(each, {"id": "value"}) for each in objects(modes.get("availableModes"))]
    return {
        "configId": _MODE,
        "name": "Mode",
        "category": _MODE,
        "type": "select",
        "currentValue": modes.get("currentModeId"),
        "options": values,
    }


def modes_of_option(option: Json) -> Json:
    """`SessionModeState` of version 1, from an option of version 2."""
    entries = objects(option.get("options"))
    groups = [entry for group in entries for entry in objects(group.get("options"))]
    values = [entry for entry in (*entries, *groups) if "value" in entry]
    return {
        "currentModeId": option.get("currentValue"),
        "availableModes": [renamed(entry, {"value": "id"}) for entry in values],
    }


# -- commands --------------------------------------------------------------------------------------


def convert_commands(commands: Any, to_version: int) -> list[Json]:
    """A list of slash commands."""
    return [
        _command_to_v2(each) if to_version == 2 else _command_to_v1(each)
        for each in objects(commands)
    ]


def _command_to_v2(command: Json) -> Json:
    changed = {"type": "command", **command}
    if isinstance(changed.get("input"), dict):
        changed["input"] = {"type": "text", **changed["input"]}
    return changed


def _command_to_v1(command: Json) -> Json:
    # A skill keeps its type, for the way back.
    changed = without(command, "type") if command.get("type") == "command" else dict(command)
    told = changed.get("input")
    if isinstance(told, dict):
        changed["input"] = without(told, "type") if "hint" in told else None
    return changed
