"""A chain in a program that runs trio or asyncio.

    async with conductor.open_chain("review.yaml") as client:
        session = await client.new_session("/project")
        async with session.turn("Review the last commit") as turn:
            async for update in turn:
                print(update)
        print(turn.result.stop_reason)

In trio the chain runs in the program's own run, in asyncio in a thread that runs trio (a portal of
anyio): the methods are the same. (Guest mode would install trio's signal handling and one run per
process.)
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from conductor.chainfile import ChainFile
from conductor.client.chain_core import (
    CallBack,
    ChainCore,
    ChainSettings,
    SessionCore,
    TurnCore,
    TurnResult,
    load_agent_chain,
    open_core,
)
from conductor.errors import ConnectionClosed

if TYPE_CHECKING:
    from conductor.client.chain_core import Initialized, SessionUpdate
    from conductor.schema import v1, v2


__all__ = ["ChainClient", "ChainSession", "ChainTurn", "open_chain"]

THREAD: Final = "acp-conductor chain"
"""Name of the thread of a chain in a program that does not run trio."""
ENDED: Final = "the chain has ended"

Answer: TypeAlias = str | Awaitable[str | None] | None
"""The id of an option; None is the outcome `cancelled`."""
Call: TypeAlias = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def open_chain(
    chain: str | os.PathLike[str] | ChainFile,
    *,
    permission: Callable[[v1.RequestPermissionRequest], Answer]
    | Callable[[v2.RequestPermissionRequest], Answer]
    | None = None,
    handlers: Mapping[str, Callable[[Any], Any]] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    version: int = 1,
) -> AsyncIterator[ChainClient]:
    """Run a chain for the block, with the program as its client. For trio and asyncio.

    `chain` is the path of a chain file with an agent, or what `conductor.chainfile.load` returns.
    `permission` is called with each permission question and returns the id of an option, or None
    for the outcome `cancelled`; without it the first option that rejects is chosen. `handlers` are
    called with the params (plain JSON) of the agent's other requests and notifications, by method;
    `capabilities` announces them. A handler of `session/update` gets the updates outside of turns.
    Callbacks may be async, and run in the program's event loop. `version` is that of the protocol.

    Raises `ChainFileError` (its `diagnostics` name every mistake with its place) and
    `StartError`, which names the component that did not start. In asyncio, the chain runs in a
    thread, which has ended after the block.
    """
    file = load_agent_chain(chain)
    settings = partial(
        ChainSettings,
        permission=permission,
        handlers=handlers or {},
        capabilities=capabilities or {},
        version=version,
    )
    if trio.lowlevel.in_trio_task():
        async with open_core(file, settings(_call_back)) as core:
            yield ChainClient(core, call_here)
        return
    async with _open_in_thread(lambda call_back: open_core(file, settings(call_back))) as opened:
        yield ChainClient(*opened)


class ChainClient:
    """The client of a running chain; see `open_chain`."""

    def __init__(self, core: ChainCore, call: Call) -> None:
        self._core: ChainCore = core
        self._call: Call = call

    @property
    def initialized(self) -> Initialized:
        """The agent's answer to `initialize`: its name, capabilities and authentication methods."""
        answer: Initialized = self._core.initialized
        return answer

    async def new_session(
        self, cwd: str | os.PathLike[str] | None = None, mcp_servers: Sequence[Any] = ()
    ) -> ChainSession:
        """Open a session in a directory; without one, in the current directory.

        `mcp_servers` are types of `conductor.schema` or plain JSON. Raises `RequestError` if the
        agent refuses, for example without a login.
        """
        core = await self._call(self._core.new_session, cwd, mcp_servers)
        return ChainSession(core, self._call)

    async def session(self, id: str) -> ChainSession:
        """A session that exists: `request("session/load", …)` opens it for this client."""
        return ChainSession(await self._call(self._core.existing_session, id), self._call)

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result, as plain JSON.

        Raises `RequestError` for an error, and `ComponentError` or `ConnectionClosed` if the chain
        has ended.
        """
        return await self._call(self._core.request, method, params)


class ChainSession:
    """A session of a `ChainClient`. It has one turn at a time; sessions run side by side."""

    def __init__(self, core: SessionCore, call: Call) -> None:
        self._core: SessionCore = core
        self._call: Call = call

    @property
    def id(self) -> str:
        """The session id."""
        return self._core.id

    async def prompt(self, prompt: str | Sequence[Any]) -> TurnResult:
        """Send a prompt (a text, or content blocks) and wait for the end of its turn.

        If the caller is cancelled, so is the turn. Raises `RequestError` if the agent answers with
        an error, and `ComponentError` or `ConnectionClosed` if the chain has ended.
        """
        async with self.turn(prompt) as turn:
            return await turn.wait()

    def turn(self, prompt: str | Sequence[Any]) -> ChainTurn:
        """A prompt; its updates are read while the turn runs: `async with`, then `async for`."""
        return ChainTurn(self._core, self._call, prompt)

    async def cancel(self) -> None:
        """Cancel the running turn; it ends with the stop reason `cancelled`."""

        async def cancel() -> None:
            self._core.cancel()

        await self._call(cancel)


class ChainTurn:
    """A prompt turn, as a context manager and an iterator over its updates.

    The prompt is sent at the start of the block. A block that is left before the end of the turn
    cancels it and waits for its end; a cancelled one does not wait.
    """

    def __init__(self, session: SessionCore, call: Call, prompt: str | Sequence[Any]) -> None:
        self._session: SessionCore = session
        self._call: Call = call
        self._prompt: str | Sequence[Any] = prompt
        self._core: TurnCore | None = None
        self._updates: deque[SessionUpdate] = deque()

    @property
    def result(self) -> TurnResult:
        """The end of the turn, once the iteration has ended. Raises `RuntimeError` before."""
        if self._core is None or self._core.result is None:
            raise RuntimeError("the turn has no result yet: read its updates, or `await wait()`")
        return self._core.result

    async def wait(self) -> TurnResult:
        """Wait for the end of the turn, without its updates; raises its error."""
        result: TurnResult = await self._call(self._session.finish, self._begun)
        return result

    async def __aenter__(self) -> ChainTurn:
        self._core = await self._call(self._session.begin, self._prompt)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._core is not None:
            await self._call(self._session.leave, self._core)

    def __aiter__(self) -> ChainTurn:
        return self

    async def __anext__(self) -> SessionUpdate:
        """The next update, a type of `conductor.schema`; raises the error of a failed turn."""
        if not self._updates:
            self._updates.extend(await self._call(self._session.updates, self._begun))
        if not self._updates:
            await self.wait()
            raise StopAsyncIteration
        return self._updates.popleft()

    @property
    def _begun(self) -> TurnCore:
        if self._core is None:
            raise RuntimeError("the turn has not begun: enter its block")
        return self._core


async def call_here(function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return await function(*args)


async def _call_back(function: Callable[..., Any], argument: Any) -> Any:
    result = function(argument)
    return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def _open_in_thread(
    opened_with: Callable[[CallBack], AbstractAsyncContextManager[ChainCore]],
) -> AsyncIterator[tuple[ChainCore, Call]]:
    """Open a chain in a new thread that runs trio, from a program that runs asyncio; yields it, and
    what calls its functions there.

    The thread has ended after the block, also if the block or the opening is cancelled.
    """
    import asyncio

    from anyio import CancelScope
    from anyio.from_thread import BlockingPortal, start_blocking_portal

    opened: Future[ChainCore] = Future()
    scope, left = trio.CancelScope(), trio.Event()
    error: Exception | None = None

    async def hold() -> None:
        with scope:
            async with opened_with(program.call_async) as core:
                opened.set_result(core)
                await left.wait()

    async def call(function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        if left.is_set():
            raise ConnectionClosed(ENDED)
        return await thread.call_async(function, *args)

    async with BlockingPortal() as program:
        with start_blocking_portal("trio", name=THREAD) as thread:
            holding = asyncio.ensure_future(thread.call_async(hold))
            opening = asyncio.wrap_future(opened)
            try:
                both: list[asyncio.Future[Any]] = [opening, holding]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if opening.done():
                    yield await opening, call
            except asyncio.CancelledError:
                thread.call(scope.cancel)
                raise
            except Exception as exc:
                error = exc  # raised as it is, not in an exception group
            finally:
                thread.call(left.set)
                with CancelScope(shield=True):
                    await asyncio.wait([holding])
    failure = holding.exception()
    if failure is not None and (error is None or isinstance(error, ConnectionClosed)):
        raise failure from error  # the reason why the connection was closed
    if error is not None:
        raise error
