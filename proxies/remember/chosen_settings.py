"""Mode, model and options of sessions: which of them the user has set, and which an agent offers.
Pure.

A setting is `(kind, id, value)`: kind `mode` or `model` with an empty id, or `option` with the id
of a configuration option. The results of session set-ups say what an agent offers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from conductor.setting_forms import Kind, option_id, option_of

__all__ = [
    "Setting",
    "is_current",
    "is_offered",
    "is_reported",
    "request_for",
    "same_setting",
    "setting_of",
    "state_updates",
    "without_repeated",
]

Setting: TypeAlias = tuple[Kind, str, str | bool]

_VALUE_NAMES: Final[Mapping[Kind, str]] = {"mode": "modeId", "model": "modelId", "option": "value"}
_METHODS: Final[Mapping[Kind, str]] = {
    "mode": "session/set_mode",
    "model": "session/set_model",
    "option": "session/set_config_option",
}
_STATES: Final[Mapping[Kind, tuple[str, str, str, str]]] = {
    "mode": ("modes", "availableModes", "id", "currentModeId"),
    "model": ("models", "availableModels", "modelId", "currentModelId"),
}


def setting_of(params: Mapping[str, Any]) -> Setting | None:
    """The setting of a request that sets one; `None` if it is malformed."""
    kind: Kind = next((each for each, name in _VALUE_NAMES.items() if name in params), "option")
    id = params.get("configId") if kind == "option" else ""
    value = params.get(_VALUE_NAMES[kind])
    if not isinstance(id, str) or not isinstance(value, str | bool):
        return None
    return kind, id, value


def request_for(
    setting: Setting, session: str, protocol_version: int
) -> tuple[str, dict[str, Any]]:
    """Method and params of the request that sets it."""
    kind, id, value = setting
    params: dict[str, Any] = {"sessionId": session, _VALUE_NAMES[kind]: value}
    if kind == "option":
        params["configId"] = id
        if isinstance(value, bool):
            params["type"] = "boolean"
        elif protocol_version > 1:
            params["type"] = "id"
    return _METHODS[kind], params


def is_offered(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the agent offers this value, by the result of a set-up."""
    kind, id, value = setting
    if kind == "option":
        option = _option(id, state)
        if option is None:
            return False
        if isinstance(value, bool):
            return option.get("type") == "boolean"
        return value in _values(option.get("options"))
    holder, list_name, id_name, _ = _STATES[kind]
    return any(
        each.get(id_name) == value for each in _objects(_object(state.get(holder)).get(list_name))
    )


def is_reported(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the agent says which values of this kind there are, by the result of a set-up."""
    kind = setting[0]
    return state.get("configOptions" if kind == "option" else _STATES[kind][0]) is not None


def is_current(setting: Setting, state: Mapping[str, Any]) -> bool:
    """Whether the session has this value already, by the result of a set-up."""
    kind, id, value = setting
    if kind == "option":
        return (_option(id, state) or {}).get("currentValue") == value
    holder, _, _, current = _STATES[kind]
    return _object(state.get(holder)).get(current) == value


def same_setting(setting: Setting, state: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The kinds and ids of this setting in all forms that the agent offers, its own first."""
    kind, id, _ = setting
    found = [(kind, id)]
    for category in _STATES:
        option = option_of(category, state)
        forms = [(category, "")]
        # Without a list of options, ids are all that is known of them.
        forms.append(("option", category if option is None else option_id(option) or category))
        if (kind, id) in forms:
            found += [each for each in forms if each != (kind, id)]
    return found


def state_updates(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Updates with the mode and the options of a state."""
    if isinstance(mode := _object(state.get("modes")).get("currentModeId"), str):
        yield {"sessionUpdate": "current_mode_update", "currentModeId": mode}
    if isinstance(options := state.get("configOptions"), list):
        yield {"sessionUpdate": "config_option_update", "configOptions": options}


def without_repeated(settings: Sequence[Setting], state: Mapping[str, Any]) -> list[Setting]:
    """The settings, in order; of one in two forms only the one that was set last. A mode or model
    that the agent offers as an option alone becomes one."""
    kept: list[Setting] = []
    for setting in settings:
        forms = same_setting(setting, state)
        kept = [each for each in kept if each[:2] not in forms]
        kind, _, value = setting
        if kind != "option" and state.get(_STATES[kind][0]) is None:
            option = option_of(kind, state)
            setting = setting if option is None else ("option", option_id(option) or "", value)
        kept.append(setting)
    return kept


def _option(id: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
    for each in _objects(state.get("configOptions")):
        if option_id(each) == id:
            return each
    return None


def _values(options: Any) -> Iterator[str]:
    """The values of a select option, also of those in groups."""
    for each in _objects(options):
        if "value" in each:
            yield each["value"]
        else:
            yield from _values(each.get("options"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
