"""`FakeClient` and `FakeAgent`: scripted ends of a chain that record what they receive.

They are JSON-RPC peers on a connection, not plugins: a test sees the bytes that a real program
would see, and can do what a faulty program may do: answer twice, send malformed lines, stay silent,
hang up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import attrs

from conductor.acp.turns import Ended, SessionTurns, Turns
from conductor.client.acp_client import Client
from conductor.client.embedding import AttachedClient
from conductor.errors import RequestError, describe
from conductor.peer import JsonRpcPeer, MessageHandler
from conductor.testing import updates
from conductor.testing.memory_pair_component import MemoryPairComponent
from conductor.testing.script import (
    ScriptedTurn,
    ScriptError,
    TurnStep,
    check_turn,
    noted,
    step_label,
)
from conductor.testing.transcript import Heard, Transcript
from conductor.transport.memory import MemoryTransport

__all__ = ["FakeAgent", "FakeClient", "FakeComponent", "ScriptedTurn", "TurnStep"]

_OPTIONS = [
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]
FULL_CAPABILITIES: Final[Mapping[str, Any]] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
}


@attrs.define(eq=False)
class FakeClient(Client):
    """A client that records all messages that it receives.

    It announces the files and terminals of version 1, and `elicitation` if it has a handler for it.
    Its only handler selects the first option of every `session/request_permission`; add others to
    `handlers`, by method.
    """

    transcript: Transcript = attrs.field(factory=Transcript, init=False)
    attached: AttachedClient[FakeClient] = attrs.field(init=False)
    """The running chain; `attached.ending` tells how it ended."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.tap: Transcript | None = self.transcript
        self.handlers.setdefault("session/request_permission", _first_option)

    async def initialize(
        self,
        *,
        version: int = 1,
        capabilities: Mapping[str, Any] | None = None,
        name: str = "fake-client",
    ) -> dict[str, Any]:
        if capabilities is None:
            asks = "elicitation/create" in self.handlers
            capabilities = {
                **(FULL_CAPABILITIES if version == 1 else {}),
                **({"elicitation": {"form": {}, "url": {}}} if asks else {}),
            }
        return await super().initialize(version=version, capabilities=capabilities, name=name)

    async def prompt_turn(self, session: str, prompt: str | Sequence[Any]) -> dict[str, Any]:
        """Send a prompt and wait for the end of its turn, in both versions of the protocol.

        Returns what told the end, with its `stopReason`: the result in version 1, the update in
        version 2. Raises `RequestError` if the prompt is answered with one.
        """

        is_state = partial(_is_state_of, session)
        before = len(self.transcript.labels)
        result = await self.prompt(session, prompt)
        if self.protocol_version == 1 or "stopReason" in result:  # as of a script with states
            return result
        while (end := self._end_of_turn(session, before)) is None:
            states = sum(1 for each in self.transcript if is_state(each))
            await self.transcript.wait(is_state, count=states + 1)
        return end

    def _end_of_turn(self, session: str, before: int) -> dict[str, Any] | None:
        """The state that ends the turn of a prompt sent after `before` messages were received."""
        turns: SessionTurns[str] = Turns[str](2).of(session)
        for n, heard in enumerate(self.transcript):
            if n == before:
                turns.prompt_sent("prompt", n)
            ended: Ended[str] | None = None
            if heard.label == "answer to session/prompt":
                ended = turns.prompt_answered("prompt", n, accepted=True)
            elif _is_state_of(session, heard):
                ended = turns.take(heard.params["update"], n)
            if ended is not None and ended.prompts:
                end: dict[str, Any] = ended.report
                return end
        return None


def _is_state_of(session: str, heard: Heard) -> bool:
    return heard.label == "session/update state_update" and heard.session == session


def _first_option(params: Any) -> dict[str, Any]:
    option = params["options"][0]["optionId"]
    return {"outcome": {"outcome": "selected", "optionId": option}}


@attrs.define(eq=False)
class FakeComponent(MemoryPairComponent):
    """A component played by the test, at the far end of a memory transport.

    `handlers` answer requests, by method; a request without a handler is answered -32601.
    `endpoint` sends requests and notifications. `transcript` records everything that arrives, in
    order, across restarts.
    """

    handlers: dict[str, MessageHandler] = attrs.field(factory=dict)
    transcript: Transcript = attrs.field(factory=Transcript, init=False)
    endpoint: JsonRpcPeer = attrs.field(init=False)
    """The component's end of the connection; set when it is started."""

    def hang_up(self) -> None:
        """Close the connection without notice, as a crashing program does."""
        self.endpoint.transport.close()

    # -- MemoryPairComponent -----------------------------------------------------------------------

    def _on_connected(self, transport: MemoryTransport) -> None:
        self.endpoint = JsonRpcPeer(transport, self.handlers, tap=self.transcript)

    async def _run_peer(self) -> None:
        """Run until EOF of the input, then finish open requests and flush, as a correct program
        does."""
        async with self.endpoint.open():
            await self.endpoint.ended.wait()
            await self.endpoint.wait_idle()
            self.endpoint.connection.flush()

    def _disconnect(self) -> None:
        if self.link.connection is not None:
            self.link.connection.transport.close()


@attrs.define(eq=False)
class FakeAgent(FakeComponent):
    """An agent that follows a script: `turns` has the steps of one turn per prompt.

    A step is a text, the `update` member of a `session/update`, the end of the turn (a mapping with
    `stopReason`), a `RequestError` that answers the prompt, or a function, async or not, which is
    called with the session id; `ask(…)` and `endpoint.request(…)` ask the client there. A turn ends
    with "end_turn", and so does each prompt beyond the last scripted turn. In version 2 of the
    protocol the same script is a turn of version 2: the prompt is answered first, `state_update`s
    begin and end the turn. A script with a `state_update` of its own gets no others, and is played
    before the answer. `handlers` may replace its handlers and add others.
    """

    handlers: dict[str, MessageHandler] = attrs.field(factory=dict)
    name: str = attrs.field(default="fake-agent", kw_only=True)
    role: Literal["proxy", "agent"] = attrs.field(default="agent", init=False)
    turns: list[ScriptedTurn] = attrs.field(
        factory=list, kw_only=True, validator=lambda agent, _, turns: agent._check_script(turns)
    )
    capabilities: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    _version: int = attrs.field(default=1, init=False)
    _sessions: int = attrs.field(default=0, init=False)
    _prompts: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.handlers = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/prompt": self._prompt,
            **self.handlers,
        }

    def say(self, session: str, text: str) -> None:
        members = {"messageId": f"answer-{self._prompts}"} if self._version == 2 else {}
        self.update(session, updates.chunk(text, **members))

    def update(self, session: str, update: Mapping[str, Any]) -> None:
        self.endpoint.notify("session/update", updates.params(session, update))

    async def ask(self, session: str, tool_call: Mapping[str, Any]) -> str:
        """Ask the client for permission, in the form of the negotiated version; return the id of
        the chosen option (`allow` or `reject`), or "cancelled"."""
        params: dict[str, Any] = {"sessionId": session, "options": _OPTIONS}
        if self._version == 1:
            params["toolCall"] = tool_call
        else:
            params["title"] = tool_call.get("title", "")
            params["subject"] = {"type": "tool_call", "toolCall": tool_call}
        answer = await self.endpoint.request("session/request_permission", params)
        return str(answer["outcome"].get("optionId", "cancelled"))

    def _initialize(self, params: Any) -> dict[str, Any]:
        self._version = 1 if params.get("protocolVersion", 1) == 1 else 2
        if self._version == 1:
            return {"protocolVersion": 1, "agentCapabilities": dict(self.capabilities)}
        info = {"name": self.name, "version": "0"}
        return {"protocolVersion": 2, "info": info, "capabilities": dict(self.capabilities)}

    def _new_session(self, params: Any) -> dict[str, Any]:
        self._sessions += 1
        return {"sessionId": f"session-{self._sessions}"}

    async def _prompt(self, params: Any) -> Mapping[str, Any]:
        session: str = params["sessionId"]
        steps = self.turns.pop(0) if self.turns else ()
        self._prompts += 1
        check_turn(steps, self._prompts)  # it may have been changed in place
        if self._version == 1 or any(map(_is_state, steps)):
            return await self._play(session, steps)
        if steps and isinstance(steps[0], RequestError):
            raise steps[0]
        # The task runs after the answer is written: no checkpoint lies in between.
        self.endpoint.start_soon(self._play_in_version_2, session, steps)
        return {"messageId": f"prompt-{self._prompts}"}

    async def _play_in_version_2(self, session: str, steps: ScriptedTurn) -> None:
        self.update(session, updates.state("running"))
        try:
            end = await self._play(session, steps)
        except RequestError as exc:
            raise ScriptError(
                f"turn {self._prompts} of the FakeAgent ends with the error {str(exc)!r}. In "
                "version 2 an error must be the first step: the prompt is answered before all "
                "others"
            ) from None
        self.update(session, updates.state("idle", **end))

    async def _play(self, session: str, steps: ScriptedTurn) -> Mapping[str, Any]:
        """Perform the steps; return the result that ends the turn."""
        turn = self._prompts
        for index, step in enumerate(steps):
            label = partial(step_label, index, turn, step)
            match step:
                case str():
                    self.say(session, step)
                case RequestError():
                    raise step
                case Mapping() if "stopReason" in step and "sessionUpdate" not in step:
                    return step
                case Mapping():
                    try:
                        self.update(session, step)
                    except Exception as exc:
                        raise ScriptError(f"{label()} cannot be sent: {describe(exc)}") from None
                case _:
                    with noted(label):
                        result = step(session)
                        await _finished(result, label)
        return {"stopReason": "end_turn"}

    def _check_script(self, turns: object) -> None:
        """Raise `ScriptError` for a script with a mistake, in the line that has made it."""
        if not isinstance(turns, list):
            raise ScriptError(f"turns must be a list of turns, not {turns!r}: turns=[[…], […]]")
        for number, turn in enumerate(turns, self._prompts + 1):
            check_turn(turn, number)


async def _finished(result: object, label: Callable[[], str]) -> None:
    """Await what the function of a step has returned."""
    if inspect.isawaitable(result):
        await result
    elif result is not None:
        raise ScriptError(
            f"{label()} returned {result!r}. Write a text or an update as a step of its own, or "
            "send it in the function: agent.say(session, …), agent.update(session, …)"
        )


def _is_state(step: TurnStep) -> bool:
    return isinstance(step, Mapping) and step.get("sessionUpdate") == "state_update"
