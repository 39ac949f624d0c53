"""`cursor_questions`: asks the questions of Cursor's agent in a client that does not know them.

Cursor's agent asks the user with requests of its own, `cursor/ask_question` and
`cursor/create_plan`, and waits for the answer; `cursor/update_todos` may be a request, too. A
client that does not know them answers "method not found", and the agent cannot go on. This proxy
passes them to the client first. If it does not know them, questions become a form
(`elicitation/create`) if it has forms, else permission requests; a plan becomes a text and a
permission request, todos become a plan.

The requests name no session: it is that of the tool call, else the session in which a turn runs.

For protocol version 1; with a client of version 2 it stands behind `v1_v2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from conductor.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from conductor.json_values import decode_value
from conductor.proxy import (
    AgentToolCall,
    Forward,
    Proxy,
    RequestError,
    Session,
    on,
    on_tool_end,
    on_update,
)
from proxies.shared.capabilities import has_member
from proxies.shared.questions import choose

__all__ = ["CursorQuestions"]

_CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
_STATUS: Final = {"in_progress": "in_progress", "completed": "completed", "cancelled": "completed"}


class _SessionId(msgspec.Struct):
    sessionId: str


@attrs.frozen
class CursorQuestion:
    """A question of `cursor/ask_question`."""

    id: str
    prompt: str
    options: list[tuple[str, str]]
    """Id and label; without any, a text is asked for."""
    is_multiple: bool


@attrs.define
class CursorQuestions(Proxy):
    """Ask the questions of Cursor's agent in a client that does not know them."""

    versions = (1,)

    _running: list[str] = attrs.field(factory=list, init=False)
    """The sessions in which a turn runs, the newest last."""
    _calls: dict[str, str] = attrs.field(factory=dict, init=False)
    """The session of each tool call that has not ended."""

    @on("cursor/ask_question", source="agent")
    async def ask(self, params: dict[str, Any], forward: Forward) -> Any:
        try:
            return await forward()
        except RequestError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
        session, title = self._session(params), str(params.get("title") or "")
        asked = _questions(params)
        if has_member(self.client_capabilities, ("elicitation", "form")):
            request = {"sessionId": session.id, **_form(asked, title)}
            return _form_answer(asked, await self.client.request("elicitation/create", request))
        return await self._ask_one_by_one(session, asked, title)

    @on("cursor/create_plan", source="agent")
    async def approve(self, params: dict[str, Any], forward: Forward) -> Any:
        try:
            return await forward()
        except RequestError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
        session = self._session(params)
        await session.say(f"\n\n{_plan_text(params)}\n\n")
        await self._show_todos(session, params)
        title = f"Carry out the plan: {params.get('name') or params.get('overview') or 'Plan'}"
        options = (("accepted", "Accept", "allow_once"), ("rejected", "Reject", "reject_once"))
        chosen = await self._choose(session, title, "switch_mode", options)
        return {"outcome": {"outcome": chosen or "cancelled"}}

    @on("cursor/update_todos", source="agent")
    async def update_todos(self, params: dict[str, Any], forward: Forward) -> Any:
        if not self.answering:
            await forward()
            return None
        try:
            return await forward()
        except RequestError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
        await self._show_todos(self._session(params), params)
        return {}

    @on("session/prompt")
    async def prompt(self, params: bytes, forward: Forward) -> Any:
        id = decode_value(params, type=_SessionId).sessionId
        self._running.append(id)
        try:
            return await forward()
        finally:
            self._running.remove(id)

    @on_update("tool_call")
    async def tool_announced(
        self, session: Session, update: dict[str, Any], forward: Forward
    ) -> None:
        self._calls[str(update.get("toolCallId", ""))] = session.id
        await forward()

    @on_tool_end
    async def tool_ended(self, session: Session, call: AgentToolCall) -> None:
        self._calls.pop(call.id, None)

    # ----------------------------------------------------------------------------------------------

    async def _ask_one_by_one(
        self, session: Session, asked: Sequence[CursorQuestion], title: str
    ) -> dict[str, Any]:
        """Ask each question as a permission request; of several values one can be chosen."""
        answers = []
        for each in asked:
            if not each.options:
                reason = f"the client cannot ask for a text: {each.prompt}"
                return {"outcome": {"outcome": "skipped", "reason": reason}}
            text = f"{title}: {each.prompt}" if title else each.prompt
            offered = [(str(at), label, "allow_once") for at, (_, label) in enumerate(each.options)]
            offered.append(("skip", "Skip", "reject_once"))
            chosen = await self._choose(session, text, "other", offered)
            if chosen is None:
                return _CANCELLED
            if chosen == "skip":
                return {"outcome": {"outcome": "skipped", "reason": "the user has skipped it"}}
            ids = [each.options[int(chosen)][0]]
            answers.append({"questionId": each.id, "selectedOptionIds": ids})
        return {"outcome": {"outcome": "answered", "answers": answers}}

    async def _choose(
        self, session: Session, title: str, kind: str, options: Sequence[tuple[str, str, str]]
    ) -> str | None:
        call = {"title": title, "kind": kind}
        offered = [{"optionId": id, "name": name, "kind": kind} for id, name, kind in options]
        return await choose(self, "cursor_questions", session, call, offered)

    async def _show_todos(self, session: Session, params: Mapping[str, Any]) -> None:
        entries = _todo_entries(params)
        if entries:
            await self.client.update(session.id, {"sessionUpdate": "plan", "entries": entries})

    def _session(self, params: Mapping[str, Any]) -> Session:
        """The session of a request."""
        named = params.get("sessionId") or self._calls.get(str(params.get("toolCallId")))
        id = named or (self._running[-1] if self._running else None)
        if not isinstance(id, str):
            text = "cursor_questions: the request belongs to no session in which a turn runs"
            raise RequestError(INVALID_PARAMS, text)
        return self.session_by_id(id)


# -- Cursor's members, as it documents them, and those of the protocol -----------------------------


def _questions(params: Mapping[str, Any]) -> list[CursorQuestion]:
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


def _form(asked: Sequence[CursorQuestion], title: str) -> dict[str, Any]:
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


def _form_answer(asked: Sequence[CursorQuestion], result: Any) -> dict[str, Any]:
    """The answer for Cursor to the result of an elicitation. Texts are the reason of a skip, as
    they have no place in an answer."""
    action = result.get("action") if isinstance(result, dict) else None
    if action == "decline":
        return {"outcome": {"outcome": "skipped", "reason": "the user has declined"}}
    content = result.get("content") if isinstance(result, dict) else None
    if action != "accept" or not isinstance(content, dict):
        return _CANCELLED
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


def _plan_text(params: Mapping[str, Any]) -> str:
    """The plan of `cursor/create_plan` as Markdown."""
    parts = [params.get(name) for name in ("overview", "plan")]
    name = params.get("name")
    heading = [f"# {name}"] if isinstance(name, str) and name else []
    return "\n\n".join([*heading, *(each for each in parts if isinstance(each, str) and each)])


def _todo_entries(params: Mapping[str, Any]) -> list[dict[str, Any]]:
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
