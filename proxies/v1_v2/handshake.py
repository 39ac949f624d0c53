"""`initialize` and logins in protocol versions 1 and 2. Pure.

Version 1 has `clientInfo` and `agentInfo`, booleans, and capabilities for what is a part of version
2 without being announced; version 2 requires `info`, and announces support by an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxies.v1_v2.members import Json, each, objects, renamed, without

__all__ = ["initialize_params", "initialize_result"]

_UNKNOWN_INFO: Final[Mapping[str, Any]] = {"name": "unknown", "version": "unknown"}
_OF_V2_CLIENTS: Final[Mapping[str, Any]] = {
    "session": {"compaction": {}, "configOptions": {"boolean": {}}, "cursors": {}, "notices": {}},
    "subagents": {},
    "plan": {},
}
"""Features that every client of version 2 has, as capabilities of version 1."""
_FILES: Final = ("fs", "terminal")
_BASELINE: Final = ("list", "resume", "close")
"""Session methods of every agent of version 2."""
_MCP: Final = ("http", "acp")
_PROMPT: Final = ("image", "audio", "embeddedContext")


def initialize_params(params: Json, to_version: int) -> Json:
    """The params of `initialize` in the other version.

    A client of version 2 has no files and no terminals; those of a client of version 1 are not
    announced to an agent of version 2.
    """
    if to_version == 2:
        changed = renamed(params, {"clientInfo": "info", "clientCapabilities": "capabilities"})
        changed["info"] = changed.get("info") or dict(_UNKNOWN_INFO)
        capabilities = _object(changed.get("capabilities"))
        session = without(_object(capabilities.get("session")), *_OF_V2_CLIENTS["session"])
        capabilities = without(capabilities, *_FILES, *_OF_V2_CLIENTS)
        # a skill is a command there, whose prompt becomes the block of the skill
        session["commands"] = {**_object(session.get("commands")), "skill": {}}
        capabilities["session"] = session
        convert = _to_object
    else:
        changed = renamed(params, {"info": "clientInfo", "capabilities": "clientCapabilities"})
        capabilities = _object(changed.get("clientCapabilities"))
        session = _object(capabilities.get("session")) | _OF_V2_CLIENTS["session"]
        capabilities |= {**_OF_V2_CLIENTS, "session": session}
        convert = _to_boolean
    capabilities = {name: each for name, each in capabilities.items() if each is not None}
    if isinstance(capabilities.get("auth"), dict):
        capabilities["auth"] = _members(capabilities["auth"], ("terminal",), convert)
    name = "capabilities" if to_version == 2 else "clientCapabilities"
    return {**changed, "protocolVersion": to_version, name: capabilities}


def initialize_result(result: Json, to_version: int) -> Json:
    """The result of `initialize` in the other version."""
    if to_version == 2:
        changed = renamed(result, {"agentInfo": "info", "agentCapabilities": "capabilities"})
        changed["info"] = changed.get("info") or dict(_UNKNOWN_INFO)
        changed["capabilities"] = _agent_to_v2(_object(changed.get("capabilities")))
    else:
        changed = renamed(result, {"info": "agentInfo", "capabilities": "agentCapabilities"})
        changed["agentCapabilities"] = _agent_to_v1(_object(changed.get("agentCapabilities")))
    changed["protocolVersion"] = to_version
    return each(changed, "authMethods", _method_to_v2 if to_version == 2 else _method_to_v1)


def _agent_to_v2(capabilities: Json) -> Json:
    session = without(_object(capabilities.get("sessionCapabilities")), *_BASELINE)
    prompt = _object(capabilities.get("promptCapabilities"))
    mcp = without(_object(capabilities.get("mcpCapabilities")), "sse")
    session["prompt"] = _members(prompt, _PROMPT, _to_object)
    session["mcp"] = {"stdio": {}, **_members(mcp, _MCP, _to_object)}
    others = without(
        capabilities, "loadSession", "sessionCapabilities", "promptCapabilities", "mcpCapabilities"
    )
    if isinstance(others.get("auth"), dict):
        others["auth"] = without(others["auth"], "logout")
    return {**others, "session": session}


def _agent_to_v1(capabilities: Json) -> Json:
    changed = without(capabilities, "session")
    changed["auth"] = {**_object(capabilities.get("auth")), "logout": {}}
    session = capabilities.get("session")
    if not isinstance(session, dict):
        return changed
    mcp = without(_object(session.get("mcp")), "stdio")
    changed["loadSession"] = True
    changed["promptCapabilities"] = _members(_object(session.get("prompt")), _PROMPT, _to_boolean)
    changed["mcpCapabilities"] = _members(mcp, _MCP, _to_boolean)
    baseline: Json = {name: {} for name in _BASELINE}
    changed["sessionCapabilities"] = {**without(session, "prompt", "mcp"), **baseline}
    return changed


def _method_to_v2(method: Json) -> Json:
    changed = {"type": "agent", **renamed(method, {"id": "methodId"})}
    env = changed.get("env")
    if changed["type"] == "terminal" and isinstance(env, dict):
        changed["env"] = [{"name": name, "value": value} for name, value in env.items()]
    return changed


def _method_to_v1(method: Json) -> Json | None:
    """`None`: a method of another type, which a client of version 1 would take for the agent's."""
    changed = renamed(method, {"methodId": "id"})
    kind = changed.get("type")
    if kind == "agent":
        return without(changed, "type")
    if kind == "terminal" and isinstance(changed.get("env"), list):
        changed["env"] = {
            str(each.get("name")): each.get("value") for each in objects(changed["env"])
        }
    return changed if kind == "terminal" else None


def _members(holder: Json, names: tuple[str, ...], convert: Any) -> Json:
    """The object with these members as the other version announces support; left out if not
    supported."""
    changed = dict(holder)
    for name in names:
        if name in changed:
            support = convert(changed.pop(name))
            if support is not None:
                changed[name] = support
    return changed


def _to_object(support: Any) -> Any:
    return {} if support is True else support if isinstance(support, dict) else None


def _to_boolean(support: Any) -> bool | None:
    return True if isinstance(support, dict) or support is True else None


def _object(value: Any) -> Json:
    return dict(value) if isinstance(value, dict) else {}
