"""`elicitation`: asks an agent's questions in a client that has no forms.

An agent asks the user with `elicitation/create` only if the client announces that it can. This
proxy announces it, and asks in another way: a page to open, a question with yes or no, and a choice
of up to nine values as a permission request; each other form as a text, which the user's next
prompt answers. For that prompt, the client must see the end of its turn: it gets the response
`end_turn` with the text, while the agent's turn goes on, and the prompt with the answer gets the
response of the agent. A question that the client can show itself, as a form or a page, passes
unchanged.

For protocol version 1; with a client of version 2 and an agent of version 1, behind `v1_v2`.

Options:
    options_by_kind  the client offers one option of each kind (allow, reject): a choice of values
                     is asked as a text; default false. The conductor sets it for clients known for
                     it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec
import trio

from conductor.error_codes import INVALID_PARAMS
from conductor.json_values import decode_value
from conductor.proxy import (
    Forward,
    Proxy,
    Question,
    RequestError,
    Session,
    on,
    on_question,
    on_session_end,
    per_session,
)
from proxies.elicitation.forms import (
    Choice,
    answer,
    choices,
    explained,
    shown,
    titled,
    why_not_asked,
)
from proxies.shared.capabilities import announce
from proxies.shared.questions import choose

__all__ = ["Elicitation"]

_END_TURN: Final = b'{"stopReason":"end_turn"}'


class _SessionParams(msgspec.Struct):
    sessionId: str


class _PromptParams(msgspec.Struct):
    prompt: list[Any]


@attrs.define(eq=False)
class _AgentTurn:
    """A prompt that the agent has."""

    respond: Callable[[bytes | None, bytes | None], None] | None = None
    """Answers the client's prompt; `None` while the client does not wait for an answer."""
    cancel: Callable[[], None] = lambda: None


@attrs.define(eq=False)
class _Asked:
    """A question that was asked in text."""

    params: Mapping[str, Any]
    result: dict[str, Any] = attrs.field(factory=lambda: {"action": "cancel"})
    answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class _Dialog:
    """The questions of one session; only the first one is shown."""

    asked: deque[_Asked] = attrs.field(factory=deque)
    turn: _AgentTurn | None = None

    def cancel_all(self) -> None:
        while self.asked:
            self.asked.popleft().answered.set()


@attrs.define
class Elicitation(Proxy):
    """Ask an agent's questions in a client that has no forms."""

    versions = (1,)

    options_by_kind: bool = False

    _modes: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Kinds of questions that the client cannot show: forms, pages."""

    dialogs = per_session(_Dialog)

    @on("initialize")
    async def announce(self, request: dict[str, Any], forward: Forward) -> Any:
        self._modes = frozenset(
            mode for mode in ("form", "url") if announce(request, {}, "elicitation", mode)
        )
        return await forward()

    @on_question
    async def ask(self, session: Session | None, question: Question, forward: Forward) -> Any:
        params = question.params
        if str(params.get("mode", "form")) not in self._modes:
            return await forward()
        problem = "it belongs to no session" if session is None else why_not_asked(params)
        if session is None or problem is not None:
            text = "elicitation: the client has no forms, and this cannot be asked otherwise"
            raise RequestError(INVALID_PARAMS, f"{text}: {problem}")
        offered = choices(params, by_kind=self.options_by_kind)
        if offered is not None:
            return await self._ask_permission(session, params, offered)
        return await self._ask_in_text(session.user_session, params)

    @on("elicitation/complete")
    async def completed(self, params: bytes, forward: Forward) -> None:
        if "url" not in self._modes:
            await forward()

    @on("session/prompt")
    async def prompt(self, params: bytes, forward: Forward) -> Any:
        if "form" not in self._modes:
            return await forward()
        session = self.session_by_id(decode_value(params, type=_SessionParams).sessionId)
        dialog = self.dialogs[session.id]
        if dialog.asked:
            return await self._answer(session, dialog, params)
        turn = dialog.turn = _AgentTurn()

        def answered(result: bytes | None, error: bytes | None) -> None:
            respond, turn.respond = turn.respond, None
            if dialog.turn is turn:
                dialog.turn = None
            if respond is not None:
                respond(result, error)
            elif error is not None:
                self.start_soon(self._tell_failure, session, error)

        turn.cancel = self.agent.ask("session/prompt", params, answered)
        turn.respond = self.defer(turn.cancel)
        return None

    @on("session/cancel")
    async def cancelled(self, params: bytes, forward: Forward) -> None:
        self.dialogs[decode_value(params, type=_SessionParams).sessionId].cancel_all()
        await forward()

    @on_session_end
    async def session_ended(self, session: Session) -> None:
        self.dialogs[session.id].cancel_all()

    # ----------------------------------------------------------------------------------------------

    async def _ask_permission(
        self, session: Session, params: Mapping[str, Any], offered: list[Choice]
    ) -> dict[str, Any]:
        call: dict[str, Any] = {"title": titled(params), "kind": "other"}
        if meanings := explained(params):
            call["content"] = [{"type": "content", "content": {"type": "text", "text": meanings}}]
        options = [
            {"optionId": str(number), "name": each.name, "kind": each.kind}
            for number, each in enumerate(offered)
        ]
        chosen = await choose(self, "elicitation", session, call, options)
        return {"action": "cancel"} if chosen is None else offered[int(chosen)].result

    async def _ask_in_text(self, session: Session, params: Mapping[str, Any]) -> dict[str, Any]:
        dialog = self.dialogs[session.id]
        asked = _Asked(params)
        dialog.asked.append(asked)
        try:
            if dialog.asked[0] is asked:
                await self._show(session, dialog)
            self.release_lane()
            await asked.answered.wait()
        finally:
            if asked in dialog.asked:  # the agent has cancelled it
                was_shown = dialog.asked[0] is asked
                dialog.asked.remove(asked)
                if was_shown and dialog.asked:
                    self.start_soon(self._show, session, dialog)
        return asked.result

    async def _show(self, session: Session, dialog: _Dialog) -> None:
        """Show the first question, and let the client prompt."""
        if not dialog.asked:
            return
        await session.say(f"\n\n{shown(dialog.asked[0].params)}\n")
        turn = dialog.turn
        if turn is not None and turn.respond is not None:
            respond, turn.respond = turn.respond, None
            respond(_END_TURN, None)

    async def _answer(self, session: Session, dialog: _Dialog, params: bytes) -> Any:
        """Take a prompt as the answer of the first question. It is answered itself when the agent's
        turn ends; at once if there is another question, or no turn."""
        blocks = decode_value(params, type=_PromptParams).prompt
        texts = [each.get("text") for each in blocks if isinstance(each, dict)]
        asked = dialog.asked[0]
        try:
            text = "\n".join(each for each in texts if isinstance(each, str))
            asked.result = answer(asked.params, text)
        except ValueError as exc:
            await session.say(f"This does not fit: {exc}. Write another answer, or `decline`.\n")
            return {"stopReason": "end_turn"}
        dialog.asked.popleft()
        turn = dialog.turn
        asked.answered.set()
        if turn is not None and not dialog.asked:
            turn.respond = self.defer(turn.cancel)
            return None
        await self._show(session, dialog)
        return {"stopReason": "end_turn"}

    async def _tell_failure(self, session: Session, error: bytes) -> None:
        message = decode_value(error).get("message")
        await session.notice("The agent's turn has failed", str(message), severity="error")
