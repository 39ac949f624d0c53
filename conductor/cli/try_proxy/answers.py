"""Automatic responses of `try`'s client to permission requests and elicitations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["answer_permission", "answer_question"]

_TEXTS: Final = {
    "email": "user@example.org",
    "uri": "https://example.org",
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
}
"""Texts of the formats that a field may have."""


def answer_permission(params: Mapping[str, Any], *, allows: bool) -> dict[str, Any]:
    """Select the first option that allows, or the first that rejects; cancel if there is none."""
    wanted = "allow" if allows else "reject"
    for option in params.get("options", ()):
        if str(option.get("kind")).startswith(wanted):
            return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
    return {"outcome": {"outcome": "cancelled"}}


def answer_question(params: Mapping[str, Any], *, accepts: bool) -> dict[str, Any]:
    """Decline a question, or accept it: a form with the default of each field, else with its first
    choice, its minimum, or a value of its type. Optional fields without a default stay empty."""
    if not accepts:
        return {"action": "decline"}
    if params.get("mode") == "url":
        return {"action": "accept"}
    schema = params.get("requestedSchema") or {}
    fields = schema.get("properties") or {}
    required = schema.get("required") or ()
    given = [name for name in fields if name in required or "default" in fields[name]]
    return {"action": "accept", "content": {name: _value(fields[name]) for name in given}}


def _value(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            return field.get("minimum", 1)
        case "array":
            return _choices(field.get("items") or {})[: field.get("minItems", 0)]
    return choices[0] if choices else _TEXTS.get(str(field.get("format")), "text")


def _choices(field: Mapping[str, Any]) -> list[Any]:
    titled = field.get("oneOf") or field.get("anyOf") or ()
    return [*(field.get("enum") or ()), *(each.get("const") for each in titled)]
