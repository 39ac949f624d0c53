"""Elicitations as choices of a permission request, or as a text with a text as answer. Pure.

`choices` and `shown` read the params of `elicitation/create`; `answer` makes the result out of what
the user has written. Fields are what the restricted JSON Schema of the protocol has: texts,
numbers, booleans, one or several of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["Choice", "answer", "choices", "explained", "shown", "titled", "why_not_asked"]

_MAX_CHOICES: Final = 9
"""With more, a list of buttons is worse than a text."""
_TYPES: Final = ("string", "number", "integer", "boolean", "array")
_MAX_NUMBER: Final = 2**63 - 1
_YES: Final = frozenset({"yes", "y", "true", "on", "1"})
_NO: Final = frozenset({"no", "n", "false", "off", "0"})


@attrs.frozen
class Choice:
    """An option of a permission request, and the result of the elicitation if it is chosen."""

    name: str
    kind: str
    result: dict[str, Any]


def why_not_asked(params: Mapping[str, Any]) -> str | None:
    """Why the question has no form that the user could answer; `None` if it has one."""
    mode = params.get("mode", "form")
    if mode not in ("form", "url"):
        return f"its mode {mode!r} is unknown"
    for name, field in _fields(params).items():
        kind = field.get("type")
        if kind not in _TYPES or (kind == "array" and not _listed(field)):
            return f"the type of its field {name!r} is unknown"
    return None


def choices(params: Mapping[str, Any], *, by_kind: bool = False) -> list[Choice] | None:
    """The options of a permission request that asks the same; `None` if there are none.

    `by_kind`: of each kind, there is one option.
    """
    decline = Choice("Decline", "reject_once", {"action": "decline"})
    if params.get("mode") == "url":
        return [Choice("Opened", "allow_once", {"action": "accept"}), decline]
    fields = _fields(params)
    if not fields:
        return [Choice("Accept", "allow_once", {"action": "accept", "content": {}}), decline]
    if len(fields) > 1:
        return None
    ((name, field),) = fields.items()
    if field["type"] == "boolean":
        yes, no = ({"action": "accept", "content": {name: value}} for value in (True, False))
        if by_kind:
            return [Choice("Yes", "allow_once", yes), Choice("No", "reject_once", no)]
        # To answer no is not to reject: agent-shell ends the turn after that.
        return [Choice("Yes", "allow_once", yes), Choice("No", "allow_once", no), decline]
    listed = _listed(field)
    most = 1 if by_kind else _MAX_CHOICES
    if field["type"] != "string" or not 0 < len(listed) <= most:
        return None
    found = [
        Choice(title, "allow_once", {"action": "accept", "content": {name: value}})
        for value, title in listed
    ]
    return [*found, decline]


def titled(params: Mapping[str, Any]) -> str:
    """The question as a title: the message with the page, or with what the form and its only field
    say. The user decides by it."""
    parts, fields = [*_heading(params)], [*_fields(params).values()]
    if params.get("mode") == "url":
        parts.append(str(params.get("url")))
    elif len(fields) == 1:
        parts += _texts(fields[0])
    title = ""
    for part in parts:
        if part not in title:
            separator = "" if not title else " " if title[-1] in ".:!?" or "url" in params else ": "
            title += separator + part
    return title


def explained(params: Mapping[str, Any]) -> str:
    """A line for each value to choose from that has a description; empty without any."""
    lines = [line for field in _fields(params).values() for line in _meanings(field)]
    return "\n".join(lines)


def shown(params: Mapping[str, Any]) -> str:
    """The question as a text, with how to answer."""
    fields = _fields(params)
    lines = ["\n\n".join(_heading(params)), ""]
    for name, field in fields.items():
        lines.append(f"- `{name}`: " + "; ".join(_described(name, field, params)))
        lines += [f"  {line}" for line in _meanings(field)]
    how = "" if len(fields) == 1 else ", one line for each field, as `name: value`"
    lines += ["", f"Your next message is the answer{how}. Write `decline` to give none."]
    return "\n".join(lines)


def answer(params: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The result for what the user has written. Raises `ValueError` if it does not fit."""
    text = text.strip()
    if text.casefold() == "decline":
        return {"action": "decline"}
    fields = _fields(params)
    if len(fields) == 1:
        written = {next(iter(fields)): text}
    else:
        written = _by_field(text, fields)
    content = {}
    for name, field in fields.items():
        if name in written:
            try:
                content[name] = _value(field, written[name])
            except ValueError as exc:
                raise ValueError(f"`{name}`: {exc}") from None
        elif field.get("default") is not None:
            content[name] = field["default"]
        elif name in _required(params):
            raise ValueError(f"`{name}` is missing")
    return {"action": "accept", "content": content}


def _heading(params: Mapping[str, Any]) -> list[str]:
    """The message, and title and description of the form."""
    message, schema = params.get("message"), params.get("requestedSchema")
    parts = [message] if isinstance(message, str) and message else []
    return [*parts, *(_texts(schema) if isinstance(schema, dict) else ())]


def _texts(holder: Mapping[str, Any]) -> list[str]:
    found = (holder.get(name) for name in ("title", "description"))
    return [each for each in found if isinstance(each, str) and each]


def _meanings(field: Mapping[str, Any]) -> list[str]:
    """The descriptions of the values to choose from."""
    options = [each for each in _options(field) if isinstance(each, dict)]
    return [
        f"- {each.get('title') or each.get('const')}: {each['description']}"
        for each in options
        if isinstance(each.get("description"), str)
    ]


def _described(name: str, field: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    parts = _texts(field)
    if listed := _listed(field):
        opening = "any of, with commas: " if field["type"] == "array" else "one of: "
        parts.append(opening + _titles(listed))
    elif field["type"] == "boolean":
        parts.append("yes or no")
    elif field["type"] in ("integer", "number"):
        parts.append("a number")
    if field.get("default") is not None and len(_fields(params)) > 1:
        parts.append(f"without a line: {_as_written(field, field['default'])}")
    elif name not in _required(params):
        parts.append("optional")
    return parts or ["a text"]


def _by_field(text: str, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The text for each field: lines `name: value`, by name or title."""
    titles = {str(field.get("title", name)).casefold(): name for name, field in fields.items()}
    names = {**titles, **{name.casefold(): name for name in fields}}
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        ends = [at for at, character in enumerate(line) if character == ":"]  # titles may have it
        keys = [(names.get(line[:at].strip(" `-*").casefold()), line[at + 1 :]) for at in ends]
        key, value = next((each for each in keys if each[0] is not None), (None, ""))
        if key is None:
            raise ValueError(f"there is no field in the line {line[:100]!r}")
        found[key] = value.strip()
    return found


def _value(field: Mapping[str, Any], text: str) -> Any:
    match field["type"]:
        case "boolean":
            if (folded := text.casefold()) in _YES | _NO:
                return folded in _YES
            raise ValueError("write yes or no")
        case "integer" | "number" as kind:
            return _number(field, text, kind)
        case "array":
            values = _chosen_values(field, text)
            _check_range(field, len(values), "minItems", "maxItems", "choose")
            return values
        case _ if _listed(field):
            return _chosen(field, text)
        case _:
            _check_range(field, len(text), "minLength", "maxLength", "the length must be")
            return text


def _number(field: Mapping[str, Any], text: str, kind: str) -> float:
    try:
        value = int(text) if kind == "integer" else float(text)
    except ValueError:
        what = "a whole number" if kind == "integer" else "a number"
        raise ValueError(f"write {what}") from None
    if not abs(value) <= _MAX_NUMBER:  # or it is "nan"
        raise ValueError("write a smaller number")
    _check_range(field, value, "minimum", "maximum", "write a number of")
    return value


def _check_range(field: Mapping[str, Any], value: float, low: str, high: str, words: str) -> None:
    least, most = field.get(low), field.get(high)
    if isinstance(least, int | float) and value < least:
        raise ValueError(f"{words} at least {least}")
    if isinstance(most, int | float) and value > most:
        raise ValueError(f"{words} at most {most}")


def _chosen(field: Mapping[str, Any], text: str) -> str:
    """The value that is meant by a value or by its title."""
    listed = _listed(field)
    if (value := _meant(listed, text)) is None:
        raise ValueError(f"{text[:100]!r} is none of: {_titles(listed)}")
    return value


def _chosen_values(field: Mapping[str, Any], text: str) -> list[str]:
    """The values that are meant by values or titles with commas between them, each once. Titles
    may have commas, too: the longest that fits counts."""
    listed = _listed(field)
    most = 1 + max(each.count(",") for pair in listed for each in pair)
    parts, values = [each.strip() for each in text.split(",")], dict[str, None]()
    while parts:
        for length in range(min(most, len(parts)), 0, -1):
            value = _meant(listed, ", ".join(parts[:length]))
            if value is not None:
                values[value] = None
                break
        else:
            if parts[0]:
                raise ValueError(f"{parts[0][:100]!r} is none of: {_titles(listed)}")
        del parts[:length]
    return list(values)


def _meant(listed: list[tuple[str, str]], text: str) -> str | None:
    """The value that is meant by a value or a title; upper and lower case are the same, unless
    it is exactly one of them."""
    for fold in (_spaced, lambda each: _spaced(each).casefold()):
        for value, title in listed:
            if fold(text) in (fold(value), fold(title)):
                return value
    return None


def _spaced(text: str) -> str:
    """The text with one space after each comma."""
    return ", ".join(map(str.strip, text.split(",")))


def _titles(listed: list[tuple[str, str]]) -> str:
    mark = "`" if any("," in title for _, title in listed) else ""
    return ", ".join(f"{mark}{title}{mark}" for _, title in listed)


def _as_written(field: Mapping[str, Any], value: Any) -> str:
    """A default as the user would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    titles = dict(_listed(field))
    each = value if isinstance(value, list) else [value]
    return ", ".join(
        titles.get(one, str(one)) if isinstance(one, str) else str(one) for one in each
    )


def _listed(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values to choose from, each with its title; none for a free text."""
    found = []
    for each in _options(field):
        value, title = (
            (each.get("const"), each.get("title")) if type(each) is dict else (each, each)
        )
        if isinstance(value, str):
            found.append((value, str(title or value)))
    return found


def _options(field: Mapping[str, Any]) -> list[Any]:
    """The values to choose from, as they are listed: texts, or objects with `const`."""
    holder = field.get("items") if field.get("type") == "array" else field
    if not isinstance(holder, dict):
        return []
    if holder.get("type", "string") != "string" and holder is not field:
        return []  # items of an unknown type
    found = holder.get("oneOf") or holder.get("anyOf") or holder.get("enum")
    return found if isinstance(found, list) else []


def _fields(params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: field if type(field) is dict else {} for name, field in properties.items()}


def _required(params: Mapping[str, Any]) -> list[Any]:
    required = params["requestedSchema"].get("required")
    return required if isinstance(required, list) else []
