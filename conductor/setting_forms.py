"""One setting in two forms: modes and models of a session, and options of their category.

An agent may offer its mode in `modes` and as a configuration option of the category `mode`, the
model likewise. Setting one form changes the other, and no response says so. States are results of
session set-ups; they are not changed. A module of its own, since the replay of the conductor and
the proxy `remember` compute with the same states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Kind", "current_value", "option_id", "option_of", "option_values", "state_after"]

Kind: TypeAlias = Literal["mode", "model", "option"]
"""Kinds of requests: `session/set_mode`, `session/set_model`, `session/set_config_option`."""

_HOLDERS: Final = {
    "mode": ("modes", "availableModes", "id", "currentModeId"),
    "model": ("models", "availableModels", "modelId", "currentModelId"),
}


def option_id(option: Any) -> str | None:
    """The id of a configuration option, in either version; `None` if it has none."""
    found = option.get("configId", option.get("id")) if isinstance(option, Mapping) else None
    return found if isinstance(found, str) else None


def option_of(category: str, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The option of a category, `mode` or `model`; `None` if there is none."""
    for each in _objects(state.get("configOptions")):
        if each.get("category") == category and option_id(each) is not None:
            return each
    return None


def current_value(category: str, state: Mapping[str, Any]) -> Any:
    """The mode or the model of a state: as its option says, else as the list of its own."""
    option = option_of(category, state)
    if option is not None:
        return option.get("currentValue")
    name, *_, current = _HOLDERS[category]
    return _object(state.get(name)).get(current)


def state_after(
    state: Mapping[str, Any], kind: Kind, value: Any, result: Mapping[str, Any]
) -> dict[str, Any]:
    """The state after a request that the agent has answered with `result`."""
    changed = dict(state)
    if isinstance(options := result.get("configOptions"), list):
        changed["configOptions"] = options
        for category in _HOLDERS:
            if (option := option_of(category, changed)) is not None:
                _set_list(changed, category, option.get("currentValue"))
        return changed
    if kind == "option":
        return changed
    _set_list(changed, kind, value)
    option = option_of(kind, state)
    if option is not None and value in option_values(option.get("options")):
        changed["configOptions"] = [
            {**each, "currentValue": value} if each is option else each
            for each in state["configOptions"]
        ]
    return changed


def _set_list(state: dict[str, Any], category: str, value: Any) -> None:
    """Set what `modes` or `models` say is current, if they have this value."""
    name, listed, id, current = _HOLDERS[category]
    holder = _object(state.get(name))
    if any(each.get(id) == value for each in _objects(holder.get(listed))):
        state[name] = {**holder, current: value}


def option_values(options: Any) -> Iterator[Any]:
    """The values of a selection, also of those in groups."""
    for each in _objects(options):
        if "value" in each:
            yield each["value"]
        else:
            yield from option_values(each.get("options"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
