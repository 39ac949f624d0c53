"""The handlers of events of a plugin class, as layers of the wire methods that carry the events.

A handler that decides about a message has a layer: it reads the message once, gives the author's
function what the event promises (`events`), such as a `Prompt`, and sends on what it returns or
forwards. Handlers that only observe are called by `session_tracking`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from conductor.acp import SESSION_SETUP_METHODS
from conductor.acp.sessions import AgentToolCall, OpenedBy
from conductor.errors import LocalProtocolError, RequestCancelled
from conductor.proxy.events import EventMark
from conductor.proxy.mcp_events import mcp_layer
from conductor.proxy.middleware import (
    Body,
    Layer,
    Next,
    SentRequest,
    location_of,
    text_or_none,
)
from conductor.proxy.misfits import InvalidParams, session_id_in
from conductor.proxy.peers import check_text
from conductor.proxy.permission_options import Answer, choose_option
from conductor.proxy.sessions import Session, session_in, session_of, shows_notices
from conductor.proxy.slash_commands import HANDLED_KEY, answer, is_handled, is_slash_command
from conductor.proxy.text_streams import text_filter_layers

if TYPE_CHECKING:
    from conductor.proxy.tool_names import Evidence

__all__ = [
    "PermissionQuestion",
    "Prompt",
    "Question",
    "SessionSetup",
    "author_layers",
]

T = TypeVar("T")

_TEXT_KINDS: Final = {
    "agent": ("agent_message_chunk",),
    "thought": ("agent_thought_chunk",),
    "user": ("user_message_chunk",),
}

_Function = Callable[..., Any]


@attrs.define
class SessionSetup:
    """A request that sets up a session, before the agent gets it."""

    opened_by: OpenedBy
    params: dict[str, Any] = attrs.field(repr=False)
    """The params of the request. A handler may change them."""

    @property
    def session_id(self) -> str | None:
        """The session to load, to resume or to fork; `None` for a new one."""
        id = self.params.get("sessionId")
        return id if isinstance(id, str) else None

    @property
    def cwd(self) -> str:
        return str(self.params.get("cwd") or "")

    @property
    def mcp_servers(self) -> list[dict[str, Any]]:
        """The declarations of MCP servers. Set it to change them."""
        return list(self.params.get("mcpServers") or ())

    @mcp_servers.setter
    def mcp_servers(self, servers: Sequence[dict[str, Any]]) -> None:
        self.params["mcpServers"] = list(servers)


@attrs.define
class Prompt:
    """A prompt of the user."""

    _plugin: Any = attrs.field(repr=False)
    _session: Session = attrs.field(repr=False)
    _body: Body = attrs.field(repr=False)
    _sent: SentRequest = attrs.field(repr=False)
    _blocks: list[Any] | None = attrs.field(default=None, init=False, repr=False)

    @property
    def answered_by_proxy(self) -> bool:
        """Whether a proxy nearer the agent has answered it, so that no turn ran; known after
        `forward()`."""
        answered = None if self._sent.answer is None else self._sent.answer.value
        return isinstance(answered, dict) and is_handled(answered)

    @property
    def blocks(self) -> list[Any]:
        """Content blocks, as plain JSON objects. A handler may change the list and the objects.

        Decoded when it is first read: a handler that forwards a large prompt without looking at it
        costs nothing.
        """
        if self._blocks is None:
            self._blocks = self._body.decode().get("prompt")
            if not isinstance(self._blocks, list):
                self._blocks = None
                raise InvalidParams("prompt: expected array")
        return self._blocks

    @blocks.setter
    def blocks(self, blocks: list[Any]) -> None:
        self._blocks = blocks

    @property
    def text(self) -> str:
        """The texts of all text blocks, one below the other."""
        texts = (block.get("text") for block in self.blocks if isinstance(block, dict))
        return "\n".join(each for each in texts if isinstance(each, str))

    @property
    def is_command(self) -> bool:
        """Whether it is a slash command of the agent: its first text begins with `/name`, which the
        agent need not have announced. A command is not to be changed: most agents know it only at
        the start of a prompt, and take all other text for its arguments."""
        commands = self._session.commands
        return is_slash_command(self.blocks, commands.by_agent | commands.by_proxies)

    def prepend(self, text: str) -> bool:
        """Put a text before what the user has written, and return whether it was: a slash command
        (`is_command`) stays as it is. Text that each session needs once is kept for the next
        prompt then."""
        check_text(text, "prompt.prepend()")
        if self.is_command:
            return False
        self.blocks.insert(0, {"type": "text", "text": text})
        return True

    async def answer(
        self, text: str, *, stop_reason: str = "end_turn", counts: bool = False
    ) -> dict[str, Any]:
        """Show `text` as the whole turn; return the result of the prompt, for the handler to
        return. The agent does not see the prompt. With `counts`, proxies nearer the client treat
        it as a turn of the agent: budgets and limits count it, and hooks run. The text of a
        `refusal` is a notice in a client that shows notices: it is not the agent's."""
        check_text(text, "prompt.answer()")
        session = self._session
        return await answer(
            self._plugin.client,
            session.id,
            self.blocks,
            text,
            version=session.protocol_version,
            stop_reason=stop_reason,
            in_turn=session.is_running,
            counts=counts,
            as_notice=stop_reason == "refusal" and bool(text) and shows_notices(session),
        )

    async def wait(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Hold the prompt back until `await function(*args)` returns, and return its result.

        Messages behind the prompt go on meanwhile. If the client cancels the session, the function
        is cancelled, and so is the prompt: `wait` raises `RequestCancelled`, and the turn is shown
        as cancelled if the handler does not catch it.
        """
        self._plugin.release_lane()
        with trio.CancelScope() as scope:
            self._session.held_prompts.add(scope)
            try:
                return await function(*args)
            finally:
                self._session.held_prompts.discard(scope)
        raise PromptCancelled

    def withdraw(self) -> dict[str, Any]:
        """The result of a prompt that was cancelled before the agent saw it.

        Raises `RequestCancelled` in version 2 of the protocol, in which a result says that the
        prompt is part of the conversation.
        """
        if self._session.protocol_version > 1:
            raise RequestCancelled("The prompt was withdrawn before the agent saw it")
        return {"stopReason": "cancelled", "_meta": {HANDLED_KEY: True}}


class PromptCancelled(RequestCancelled):
    """`session/cancel` has arrived while a prompt was held back."""


@attrs.define
class PermissionQuestion:
    """A permission request of the agent."""

    tool_call: AgentToolCall | None
    """The tool call that it is about, merged with earlier updates; `None` if it is about none."""
    options: Sequence[Mapping[str, Any]]
    """The options to choose from: `optionId`, `name`, `kind`."""
    params: Mapping[str, Any] = attrs.field(repr=False)
    """The params of the request."""
    _session: Session = attrs.field(repr=False)
    _announced: Mapping[str, Any] = attrs.field(repr=False)
    _told: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def evidence(self) -> Evidence:
        """Everything that the agent sent about the tool call, by message."""
        from conductor.proxy.tool_names import Evidence  # lazy: takes 5 ms

        call = self.tool_call.members if self.tool_call is not None else {}
        return Evidence(self._announced, self._told, call, self.params)

    @property
    def tool(self) -> str | None:
        """The canonical name of the tool, for every agent in `tool_names.yaml`: `server/tool` for a
        tool of an MCP server, with the name that the session declares; else the agent's own name,
        such as `Bash`.

        `None` if the request is about no tool call, or names the tool only where the model or
        another tool's server could have written it. Allow by name only what has this name.
        """
        if self.tool_call is None:
            return None
        from conductor.proxy.tool_names import canonical_name  # lazy

        names = self._session.mcp_server_names
        return canonical_name(self._session.agent_name, self.evidence, names)

    def allow(self, *, always: bool = False) -> dict[str, Any]:
        """The result that allows it, once or always. Raises `LookupError` if no option does, or if
        only the user can choose: among several answers, or another mode of the agent."""
        answer: Answer = "allow_always" if always else "allow_once"
        id = choose_option(answer, self.options, is_tool=self.tool is not None)
        if id is None:
            offered = ", ".join(str(each.get("name")) for each in self.options)
            raise LookupError(f"only the user can choose, `return await forward()`: {offered}")
        return self.choose(id)

    def deny(self) -> dict[str, Any]:
        """The result that denies it; it cancels where no option rejects."""
        id = choose_option("deny", self.options)
        return {"outcome": {"outcome": "cancelled"}} if id is None else self.choose(id)

    def choose(self, option_id: str) -> dict[str, Any]:
        """The result that chooses an option."""
        return {"outcome": {"outcome": "selected", "optionId": option_id}}


@attrs.frozen
class Question:
    """An elicitation: a question of the agent to the user."""

    message: str
    params: Mapping[str, Any] = attrs.field(repr=False)
    """The params of `elicitation/create`."""

    def accept(self, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result that answers it with these values."""
        return {"action": "accept", "content": dict(content or {})}

    def decline(self) -> dict[str, Any]:
        """The result with which the user declines to answer."""
        return {"action": "decline"}

    def cancel(self) -> dict[str, Any]:
        """The result with which the user dismisses the question."""
        return {"action": "cancel"}


def author_layers(function: _Function, mark: EventMark) -> Iterable[tuple[str, Layer]]:
    """Yield the methods that carry an event, each with the layer that calls its handler."""
    location = location_of(function)
    match mark.event:
        case "on_session_setup":
            for method in SESSION_SETUP_METHODS:
                yield method, Layer(partial(_setup, function, method), location)
        case "on_prompt":
            yield "session/prompt", Layer(partial(_prompt, function), location)
        case "on_permission":
            yield "session/request_permission", Layer(partial(_permission, function), location)
        case "on_question":
            yield "elicitation/create", Layer(partial(_question, function), location)
        case "on_update":
            handle = partial(_update, function, frozenset(mark.kinds))
            yield "session/update", Layer(handle, location, frozenset(mark.kinds))
        case "on_text":
            kinds = [kind for role in mark.kinds for kind in _TEXT_KINDS[role]]
            handle = partial(_text, function, frozenset(kinds))
            yield "session/update", Layer(handle, location, frozenset(kinds))
        case "text_filter":
            kinds = [kind for role in mark.kinds for kind in _TEXT_KINDS[role]]
            yield from text_filter_layers(function, frozenset(kinds))
        case "on_mcp":
            yield "mcp/message", mcp_layer(function, mark.kinds)


async def _setup(
    function: _Function, method: str, plugin: Any, body: Body, call_next: Next
) -> Body:
    opened_by: Any = method.removeprefix("session/")
    setup = SessionSetup(opened_by, body.decode())
    sent = SentRequest(call_next, lambda changed: body.edited((changed or setup).params))
    result = await function(plugin, setup, sent.forward)
    return sent.answered(function, result, "`return await forward()`")


async def _prompt(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    if body.is_command:
        return await call_next(body)
    session = session_in(plugin, body)
    if session is None:
        raise InvalidParams("sessionId: expected string")

    def edited(changed: Prompt | None) -> Body:
        blocks = (prompt if changed is None else changed)._blocks
        if blocks is None or blocks == (received := body.value)["prompt"]:
            return body
        _check_blocks(function, blocks, received["prompt"])
        passed = Body.of({**received, "prompt": blocks})
        passed.session = body.session
        return passed

    sent = SentRequest(call_next, edited)
    prompt = Prompt(plugin, session, body, sent)
    try:
        result = await function(plugin, session, prompt, sent.forward)
    except PromptCancelled:
        if session.protocol_version > 1:
            raise
        return Body.of({"stopReason": "cancelled"})
    return sent.answered(
        function, result, "`return await forward()` or `return await prompt.answer(…)`"
    )


def _check_blocks(function: _Function, blocks: Any, received: Any) -> None:
    """Raise `LocalProtocolError` if the author has put a text in the place of a content block."""
    if isinstance(blocks, list | tuple):
        for each in blocks:
            if isinstance(each, str) and each not in received:
                break
        else:
            return
    raise LocalProtocolError(
        f"{function.__qualname__} has changed `prompt.blocks` to something else than a list of "
        "content blocks; for a text write `text(…)`, imported from conductor.proxy"
    )


async def _permission(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    session = session_of(plugin, session_id_in(params))
    told = session.call_table.told_in(params)
    call, announced = None, {}
    if isinstance(told, dict):
        known = session.tool_calls.get(str(told.get("toolCallId", "")))
        announced = {} if known is None else dict(known.members)
        call = session.call_table.update_asked(told)
    options = [each for each in params.get("options") or () if isinstance(each, dict)]
    asked = PermissionQuestion(
        call, options, params, session, announced, told if isinstance(told, dict) else {}
    )
    sent = SentRequest(
        call_next, lambda changed: body.edited(params if changed is None else changed)
    )
    return sent.answered(
        function,
        await function(plugin, session, asked, sent.forward),
        "`return await forward()`, `return asked.allow()` or `return asked.deny()`",
    )


async def _question(function: _Function, plugin: Any, body: Body, call_next: Next) -> Body:
    params = body.decode()
    id = params.get("sessionId")
    session = session_of(plugin, id) if isinstance(id, str) else None
    question = Question(str(params.get("message", "")), params)
    sent = SentRequest(
        call_next, lambda changed: body.edited(params if changed is None else changed)
    )
    return sent.answered(
        function,
        await function(plugin, session, question, sent.forward),
        "`return await forward()`, `return question.accept(…)` or `return question.decline()`",
    )


async def _update(
    function: _Function, kinds: frozenset[str], plugin: Any, body: Body, call_next: Next
) -> Body:
    params = body.decode()
    update = params.get("update")
    if not isinstance(update, dict) or update.get("sessionUpdate") not in kinds:
        return await call_next(body)

    async def forward(changed: Mapping[str, Any] | None = None) -> None:
        shown = update if changed is None else changed
        await call_next(body.edited({**params, "update": shown}))

    await function(plugin, session_of(plugin, session_id_in(params)), update, forward)
    return body


async def _text(
    function: _Function, kinds: frozenset[str], plugin: Any, body: Body, call_next: Next
) -> Body:
    params = body.value
    update = params.get("update")
    if not isinstance(update, dict) or update.get("sessionUpdate") not in kinds:
        return await call_next(body)
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(text, str):
        return await call_next(body)
    session = session_of(plugin, session_id_in(params))
    shown = text_or_none(function, await function(plugin, session, text))
    if shown is None or shown == text:
        return await call_next(body)
    changed = {**params, "update": {**update, "content": {**content, "text": shown}}}
    return await call_next(Body.of(changed))
