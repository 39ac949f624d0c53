"""A chain file's chain with a typed client, for the embedding APIs. Runs in trio.

`open_core` starts the chain and initializes it. `conductor.client.open_chain` and `open_chain_sync`
call it, directly or in the thread of the chain.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from conductor.acp import MAX_AGENTS_ID
from conductor.acp.turns import Ended, SessionTurns, Turns
from conductor.bounded_dict import BoundedDict
from conductor.chainfile import ChainFile, Diagnostic, SourceLocation, load
from conductor.client.acp_client import ChainClient
from conductor.client.embedding import AttachedClient, attach_file
from conductor.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from conductor.errors import (
    ChainFileError,
    ConductorError,
    ConnectionClosed,
    LocalProtocolError,
    RemoteProtocolError,
    RequestError,
    describe,
)
from conductor.log import get_logger
from conductor.proxy.conversion import encode
from conductor.proxy.second_agent import start_error
from conductor.schema.base import Object
from conductor.schema.convert import SchemaError, structure, unstructure

if TYPE_CHECKING:
    from conductor.schema import v1, v2

    Initialized: TypeAlias = v1.InitializeResponse | v2.InitializeResponse
    SessionUpdate: TypeAlias = v1.SessionUpdate | v2.SessionUpdate
    Usage: TypeAlias = v1.Usage | v2.Usage

__all__ = [
    "CallBack",
    "ChainCore",
    "ChainSettings",
    "SessionCore",
    "TurnCore",
    "TurnResult",
    "load_agent_chain",
    "open_core",
]

log: Final = get_logger(component="client")

CallBack: TypeAlias = Callable[[Callable[..., Any], Any], Awaitable[Any]]
"""Calls a function of the embedding program with one argument, where the program runs."""

_VERSIONS: Final = (1, 2)
_PERMISSION: Final = "session/request_permission"
_MAX_SUBAGENTS: Final = 1000
"""Sessions of subagents that are remembered; the oldest are forgotten."""
_REJECTIONS: Final = ("reject_once", "reject_always")


@attrs.frozen
class ChainSettings:
    """Settings of the embedding program; see `open_chain`."""

    call_back: CallBack
    permission: Callable[[Any], Any] | None = None
    handlers: Mapping[str, Callable[[Any], Any]] = attrs.field(factory=dict)
    capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    version: int = 1


def load_agent_chain(source: str | os.PathLike[str] | ChainFile) -> ChainFile:
    """The chain of a file, which must have an agent. Raises `ChainFileError`."""
    file = source if isinstance(source, ChainFile) else load(os.fspath(source))
    if file.agent is None:
        where = "the chain" if isinstance(source, ChainFile) else os.fspath(source)
        message = "the chain has no `agent`: it is a proxy for other chains"
        help = "add an `agent`, or name the file below `proxies` of a chain that has one"
        raise ChainFileError([Diagnostic(SourceLocation.whole(where), message, help=help)])
    return file


@asynccontextmanager
async def open_core(file: ChainFile, settings: ChainSettings) -> AsyncIterator[ChainCore]:
    """Run the chain for the block. Raises `StartError` if it does not start."""
    core = ChainCore(settings)
    agent = file.agent.name if file.agent is not None else "agent"
    client = partial(ChainClient, handlers=core.handlers(), unread=core.unread, agent=agent)
    async with attach_file(client, file) as attached:
        core.attached = attached
        await core.initialize(agent)
        yield core


@attrs.frozen
class TurnResult:
    """The end of a prompt turn."""

    stop_reason: str
    """The protocol's value: `end_turn`, `max_tokens`, `refusal`, `cancelled` and so on."""
    text: str
    """The text of the agent's message chunks, without its thoughts."""
    usage: Usage | None = None
    """The tokens of the turn, if the agent reports them: a type of `conductor.schema`."""


@attrs.define(eq=False)
class TurnCore:
    """A running turn. Its methods are called in the chain's trio run."""

    types: Any
    """`conductor.schema.v1` or `v2`."""
    turns: SessionTurns[Any]
    """Those of the session."""
    size: int = attrs.field(default=0, init=False)
    """Bytes of the updates that are not yet taken."""
    result: TurnResult | None = attrs.field(default=None, init=False)
    error: Exception | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _updates: list[Any] = attrs.field(factory=list, init=False)
    _text: list[str] = attrs.field(factory=list, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.turns.prompt_sent(self, trio.current_time())

    async def updates(self) -> list[SessionUpdate]:
        """Wait for updates and return all that arrived; an empty list at the end of the turn."""
        while not self._updates and not self.ended.is_set():
            if self._changed.is_set():  # not another one while somebody waits
                self._changed = trio.Event()
            await self._changed.wait()
        taken, self._updates, self.size = self._updates, [], 0
        return taken

    def on_update(self, params: dict[str, Any]) -> None:
        size = len(encode(params) or b"")
        try:
            update = structure(params["update"], self.types.SessionUpdate)
        except (KeyError, SchemaError) as exc:
            log.warning("update left out: it does not fit the schema", error=describe(exc))
            return
        ended = self.turns.take(params["update"], trio.current_time())
        self._updates.append(update)
        self.size += size
        types = self.types
        if isinstance(update, types.AgentMessageChunk) and isinstance(
            update.content, types.TextContent
        ):
            self._text.append(update.content.text)
        self._end_with(ended)
        self._changed.set()

    def on_response(self, response: dict[str, Any]) -> None:
        """Version 1 ends a turn with the response; version 2 with an update after it or before."""
        reason = response.get("stopReason")
        if reason is None and self.types.__name__.endswith("v1"):
            self.fail(RemoteProtocolError("the agent", "the turn ended without a `stopReason`"))
            self.end()
            return
        self._end_with(
            self.turns.prompt_answered(
                self, trio.current_time(), accepted=True, stop_reason=reason, report=response
            )
        )

    def fail(self, error: Exception) -> None:
        """Keep the first error; it is raised at the end of the turn."""
        self.error = self.error or error

    def end(self) -> None:
        """End the turn: nothing more arrives for it."""
        self.turns.prompt_answered(self, trio.current_time(), accepted=False)
        self.ended.set()
        self._changed.set()

    def _end_with(self, ended: Ended[Any] | None) -> None:
        if ended is None or self not in ended.prompts:
            return
        usage = ended.report.get("usage")
        try:
            usage = None if usage is None else structure(usage, self.types.Usage)
        except SchemaError:
            usage = None
        self.result = TurnResult(str(ended.stop_reason or "end_turn"), "".join(self._text), usage)
        self.end()


@attrs.define(eq=False)
class SessionCore:
    """A session of the chain; it has one turn at a time."""

    id: str
    chain: ChainCore
    turns: SessionTurns[Any] = attrs.field(init=False)
    turn: TurnCore | None = attrs.field(default=None, init=False)
    is_cancelled: bool = attrs.field(default=False, init=False)
    """Whether the running turn was cancelled."""
    questions: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    """Scopes of the program's open permission callbacks."""

    def __attrs_post_init__(self) -> None:
        self.turns = self.chain.turns.of(self.id)

    async def begin(self, prompt: str | Sequence[Any]) -> TurnCore:
        """Send a prompt, after the end of a turn that was cancelled.

        Raises `LocalProtocolError` while another turn runs, and the chain's error if it has ended.
        """
        while self.turn is not None and not self.turn.ended.is_set():
            if not self.is_cancelled:
                message = "a turn of this session runs: wait for its end, or open another session"
                raise LocalProtocolError(message)
            await self.turn.ended.wait()
        if self.chain.client.ended.is_set():
            raise await self.chain.end_error()
        self.is_cancelled = False
        turn = self.turn = TurnCore(self.chain.types, self.turns)
        self.chain.client.start_soon(self._run, turn, prompt)
        return turn

    async def finish(self, turn: TurnCore) -> TurnResult:
        """Wait for the end of the turn; drops the remaining updates.

        Raises the error of the turn (`RequestError`), or that of a chain that has ended.
        """
        while await self.updates(turn):
            pass
        if turn.error is not None:
            raise turn.error
        if turn.result is None:
            raise await self.chain.end_error()
        return turn.result

    async def updates(self, turn: TurnCore) -> list[Any]:
        """See `TurnCore.updates`. Resumes the reader if back-pressure has paused it."""
        taken = await turn.updates()
        self.chain.client.made_room()
        return taken

    async def leave(self, turn: TurnCore) -> None:
        """Cancel the turn if it runs, and wait for its end."""
        if not turn.ended.is_set():
            self.cancel()
            while await self.updates(turn):
                pass

    def cancel(self) -> None:
        """Cancel the running turn and its permission questions."""
        running = self.turn is not None and not self.turn.ended.is_set()
        if running and not self.is_cancelled:
            self.is_cancelled = True
            self.turns.cancel(trio.current_time())
            self.chain.client.cancel(self.id)
            for scope in self.questions:
                scope.cancel()

    async def _run(self, turn: TurnCore, prompt: str | Sequence[Any]) -> None:
        blocks = prompt if isinstance(prompt, str) else [_plain(each) for each in prompt]
        untouched = partial(self.turns.is_untouched, turn)
        client = self.chain.client
        try:
            await self.chain.answer_of(
                client.prompt(self.id, blocks, answered=turn.on_response, is_untouched=untouched)
            )
            await turn.ended.wait()
        except Exception as exc:  # raised where the program waits for the turn
            turn.fail(exc)
        finally:
            turn.end()
            if self.turn is turn:
                self.turn = None


@attrs.define(eq=False)
class ChainCore:
    """The running chain and its sessions."""

    settings: ChainSettings
    attached: AttachedClient[ChainClient] = attrs.field(init=False)
    types: Any = attrs.field(default=None, init=False)
    """`conductor.schema.v1` or `v2`, by the negotiated version."""
    initialized: Any = attrs.field(default=None, init=False)
    turns: Turns[Any] = attrs.field(factory=lambda: Turns(2), init=False)
    """Also of version 1: there the answer to a prompt has the stop reason that ends it."""
    _sessions: dict[str, SessionCore] = attrs.field(factory=dict, init=False)
    _subagents: BoundedDict[str, SessionCore] = attrs.field(
        factory=lambda: BoundedDict(_MAX_SUBAGENTS), init=False
    )
    """The sessions of subagents, each with the program's session that it belongs to."""
    _requests: int = attrs.field(default=0, init=False)

    @property
    def client(self) -> ChainClient:
        return self.attached.client

    async def initialize(self, agent: str) -> None:
        settings = self.settings
        try:
            result = await self.answer_of(
                self.client.initialize(version=settings.version, capabilities=settings.capabilities)
            )
        except RequestError as exc:
            raise start_error(agent, exc) from exc
        version = self.client.protocol_version
        if version not in _VERSIONS:
            raise RemoteProtocolError("the agent", f"it speaks protocol version {version}")
        self.types = import_module(f"conductor.schema.v{version}")
        try:
            self.initialized = structure(result, self.types.InitializeResponse)
        except SchemaError as exc:
            message = f"its answer to initialize does not fit the schema: {exc}"
            raise RemoteProtocolError("the agent", message) from None

    async def new_session(
        self, cwd: str | os.PathLike[str] | None, mcp_servers: Sequence[Any]
    ) -> SessionCore:
        servers = [_plain(each) for each in mcp_servers]
        directory = os.path.join(os.getcwd(), cwd) if cwd else os.getcwd()
        id = await self._asked(self.client.new_session(directory, servers))
        session = self._sessions[id] = SessionCore(id, self)
        return session

    async def existing_session(self, id: str) -> SessionCore:
        """The session with this id, for one that `request` has loaded or resumed."""
        return self._sessions.setdefault(id, SessionCore(id, self))

    async def request(self, method: str, params: Any) -> Any:
        return await self._asked(self.client.request(method, params))

    async def answer_of(self, request: Awaitable[Any]) -> Any:
        """The response to a request. Raises the error of a chain that ends before (`end_error`)."""
        try:
            return await request
        except ConnectionClosed:
            raise await self.end_error() from None

    async def end_error(self) -> ConductorError:
        """The error of a chain that has ended, or ends now."""
        await self.attached.ended.wait()
        ending = self.attached.ending
        if ending is not None and ending.error is not None:
            return ending.error
        return ConnectionClosed("the chain has ended")

    def unread(self) -> int:
        """Bytes of updates that the program has not read, for back-pressure.

        0 while a request waits: its response arrives after them.
        """
        if self._requests:
            return 0
        turns = (session.turn for session in self._sessions.values())
        return sum(turn.size for turn in turns if turn is not None)

    def handlers(self) -> dict[str, Callable[[Any], Any]]:
        """The handlers of the client: those of the program and its answers to permission."""
        found: dict[str, Callable[[Any], Any]] = {
            method: partial(self._handle, method, handler)
            for method, handler in self.settings.handlers.items()
        }
        return {_PERMISSION: self._permission, **found, "session/update": self._update}

    async def _asked(self, request: Awaitable[Any]) -> Any:
        self._requests += 1
        if hasattr(self, "attached"):
            self.client.made_room()
        try:
            return await self.answer_of(request)
        finally:
            self._requests -= 1

    def _update(self, params: Any) -> Awaitable[None] | None:
        id = params.get("sessionId") if isinstance(params, dict) else None
        session = self._sessions.get(str(id))
        self._note_subagent(id, params)
        if session is not None and session.turn is not None:
            session.turn.on_update(params)
            return None
        if session is not None and isinstance(update := params.get("update"), dict):
            session.turns.take(update, trio.current_time())
        handler = self.settings.handlers.get("session/update")
        return None if handler is None else self._notified(handler, params)

    def _note_subagent(self, id: Any, params: Any) -> None:
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict) and update.get("sessionUpdate") == "subagent_update":
            user = self._sessions.get(str(id)) or self._subagents.get(str(id))
            child = update.get("sessionId")
            if user is None or not isinstance(child, str) or len(child) > MAX_AGENTS_ID:
                return
            self._subagents.setdefault(child, user)

    async def _notified(self, handler: Callable[[Any], Any], params: Any) -> None:
        try:
            await self.settings.call_back(handler, params)
        except Exception as exc:  # code of the embedding program
            log.error("handler failed", method="session/update", error=describe(exc))

    async def _handle(self, method: str, handler: Callable[[Any], Any], params: Any) -> Any:
        try:
            return await self.settings.call_back(handler, params)
        except RequestError:
            raise
        except Exception as exc:  # code of the embedding program
            log.error("handler failed", method=method, error=describe(exc))
            raise RequestError(INTERNAL_ERROR, f"Internal error: {describe(exc)}") from None

    async def _permission(self, params: Any) -> dict[str, Any]:
        try:
            question = structure(params, self.types.RequestPermissionRequest)
        except SchemaError as exc:
            raise RequestError(INVALID_PARAMS, f"Invalid params: {exc}") from None
        id = question.session_id
        session = self._sessions.get(id) or self._subagents.get(id)
        chosen = None
        if self.settings.permission is None:
            chosen = next((o.option_id for o in question.options if o.kind in _REJECTIONS), None)
        elif session is not None and not session.is_cancelled:
            chosen = await self._ask(session, self.settings.permission, question)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    async def _ask(
        self, session: SessionCore, permission: Callable[[Any], Any], question: Any
    ) -> str | None:
        """The chosen option. An exception of the program ends the turn, which raises it."""
        scope = trio.CancelScope()
        session.questions.add(scope)
        chosen: str | None = None
        try:
            with scope:
                chosen = await self.settings.call_back(permission, question)
                _check_option(chosen, question)
        except Exception as exc:  # code of the embedding program
            chosen = None
            if session.turn is None:
                log.error("handler failed", method=_PERMISSION, error=describe(exc))
            else:
                session.turn.fail(exc)
                session.cancel()
        finally:
            session.questions.discard(scope)
        return chosen


def _check_option(chosen: Any, question: Any) -> None:
    options = [option.option_id for option in question.options]
    if chosen is not None and chosen not in options:
        raise ValueError(f"{chosen!r} is not an option of the question: {', '.join(options)}")


def _plain(value: Any) -> Any:
    """Plain JSON of a schema type; other values as they are."""
    return unstructure(value) if isinstance(value, Object) else value
