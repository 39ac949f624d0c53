"""Questions, plans and todos of Cursor's agent, in the terms of the protocol. Pure.

The members are those of Cursor's documentation of its ACP extension methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from conductor.error_codes import INVALID_PARAMS
from conductor.proxy import RequestError

__all__ = [
    "CANCELLED",
    "CursorQuestion",
    "form",
    "form_answer",
    "plan_text",
    "questions",
    "todo_entries",
]

CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
_STATUS: Final = {"in_progress": "in_progress", "completed": "completed", "cancelled": "completed"}


@attrs.frozen
class CursorQuestion:
    """A question of `cursor/ask_question`."""

    id: str
    prompt: str
    options: list[tuple[str, str]]
    """Id and label; without any, a text is asked for."""
    is_multiple: bool


def questions(params: Mapping[str, Any]) -> list[CursorQuestion]:
    """The questions of a request. Raises `RequestError`."""
    try:
        return [
            CursorQuestion(
                str(each["id"]),
                str(each["prompt"]),
                [(str(one["id"]), str(one["label"])) for one in each.get("options") or ()],
                each.get("allowMultiple") is True,
            )
            for each in params["questions"]
        ]
    except (KeyError, TypeError, AttributeError):
        text = "cursor_questions: the questions are not as Cursor documents them"
        raise RequestError(INVALID_PARAMS, text) from None


def form(asked: Sequence[CursorQuestion], title: str) -> dict[str, Any]:
    """The params of `elicitation/create`, without the session."""
    fields: dict[str, dict[str, Any]] = {}
    for each in asked:
        choices = [{"const": id, "title": label} for id, label in each.options]
        field: dict[str, Any] = {"type": "string", "title": each.prompt}
        if each.is_multiple and choices:
            field = {"type": "array", "title": each.prompt, "items": {"anyOf": choices}}
        elif choices:
            field["oneOf"] = choices
        fields[each.id] = field
    message = title or (asked[0].prompt if len(asked) == 1 else "The agent has questions.")
    required = [each.id for each in asked if each.options and not each.is_multiple]
    schema = {"type": "object", "properties": fields, "required": required}
    return {"mode": "form", "message": message, "requestedSchema": schema}


def form_answer(asked: Sequence[CursorQuestion], result: Any) -> dict[str, Any]:
    """The answer for Cursor to the result of an elicitation. Texts are the reason of a skip, as
    they have no place in an answer."""
    action = result.get("action") if isinstance(result, dict) else None
    if action == "decline":
        return {"outcome": {"outcome": "skipped", "reason": "the user has declined"}}
    content = result.get("content") if isinstance(result, dict) else None
    if action != "accept" or not isinstance(content, dict):
        return CANCELLED
    written = [f"{each.prompt} {content.get(each.id, '')}" for each in asked]
    if any(not each.options and content.get(each.id) for each in asked):
        return {"outcome": {"outcome": "skipped", "reason": "; ".join(written)}}
    answers = []
    for each in asked:
        value = content.get(each.id)
        chosen = value if isinstance(value, list) else [value]
        known = {id for id, _ in each.options}
        ids = [id for id in chosen if isinstance(id, str) and id in known]
        answers.append({"questionId": each.id, "selectedOptionIds": ids})
    return {"outcome": {"outcome": "answered", "answers": answers}}


def plan_text(params: Mapping[str, Any]) -> str:
    """The plan of `cursor/create_plan` as Markdown."""
    parts = [params.get(name) for name in ("overview", "plan")]
    name = params.get("name")
    heading = [f"# {name}"] if isinstance(name, str) and name else []
    return "\n\n".join([*heading, *(each for each in parts if isinstance(each, str) and each)])


def todo_entries(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The todos as entries of a plan, also those of its phases."""
    found = list(_objects(params.get("todos")))
    for phase in _objects(params.get("phases")):
        found += _objects(phase.get("todos"))
    return [
        {
            "content": str(each.get("content") or each.get("title") or ""),
            "priority": "medium",
            "status": _STATUS.get(str(each.get("status")), "pending"),
        }
        for each in found
    ]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
