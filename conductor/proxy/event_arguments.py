"""Arguments of event handlers: a session set-up, a prompt, a permission request, an elicitation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from conductor.acp.sessions import AgentToolCall, OpenedBy
from conductor.errors import RequestCancelled
from conductor.proxy.middleware import Body, SentRequest
from conductor.proxy.misfits import InvalidParams
from conductor.proxy.peers import check_text
from conductor.proxy.permission_options import Answer, choose_option
from conductor.proxy.sessions import Session, shows_notices
from conductor.proxy.slash_commands import HANDLED_KEY, answer, is_handled, is_slash_command

if TYPE_CHECKING:
    from conductor.proxy.tool_names import Evidence

__all__ = ["PermissionQuestion", "Prompt", "PromptCancelled", "Question", "SessionSetup"]

T = TypeVar("T")


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
    def is_read(self) -> bool:
        """Whether a handler has read or set `blocks`, and so may have changed them."""
        return self._blocks is not None

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
