"""A chain in a program without an event loop. The chain runs in a thread that runs trio.

with conductor.open_chain_sync("review.yaml") as client:
    print(client.new_session("/project").prompt("Review the last commit").text)
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from conductor.chainfile import ChainFile
from conductor.client.chain_core import ChainSettings, TurnResult, load_agent_chain, open_core
from conductor.client.open_chain import (
    ENDED,
    THREAD,
    ChainClient,
    ChainSession,
    ChainTurn,
    call_here,
)
from conductor.errors import ConnectionClosed

if TYPE_CHECKING:
    from conductor.client.chain_core import Initialized, SessionUpdate
    from conductor.schema import v1, v2


__all__ = ["SyncChainClient", "SyncChainSession", "SyncChainTurn", "open_chain_sync"]

Call: TypeAlias = Callable[..., Any]


@contextmanager
def open_chain_sync(
    chain: str | os.PathLike[str] | ChainFile,
    *,
    permission: Callable[[v1.RequestPermissionRequest], str | None]
    | Callable[[v2.RequestPermissionRequest], str | None]
    | None = None,
    handlers: Mapping[str, Callable[[Any], Any]] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    version: int = 1,
) -> Iterator[SyncChainClient]:
    """`open_chain` for a program without an event loop.

    Callbacks are functions, and called in other threads. Ctrl-C while a method waits cancels what
    it waits for.
    """
    from anyio.from_thread import start_blocking_portal

    file = load_agent_chain(chain)
    settings = ChainSettings(
        _call_back, permission, handlers or {}, capabilities or {}, version=version
    )
    is_open = True

    def call(function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        if not is_open:
            raise ConnectionClosed(ENDED)
        future = portal.start_task_soon(function, *args)
        try:
            return future.result()
        finally:
            future.cancel()  # by Ctrl-C

    with start_blocking_portal("trio", name=THREAD) as portal:
        try:
            with portal.wrap_async_context_manager(open_core(file, settings)) as core:
                yield SyncChainClient(ChainClient(core, call_here), call)
        finally:
            is_open = False


class SyncChainClient:
    """The client of a running chain; see `open_chain_sync`."""

    def __init__(self, client: ChainClient, call: Call) -> None:
        self._client: ChainClient = client
        self._call: Call = call

    @property
    def initialized(self) -> Initialized:
        """See `ChainClient.initialized`."""
        return self._client.initialized

    def new_session(
        self, cwd: str | os.PathLike[str] | None = None, mcp_servers: Sequence[Any] = ()
    ) -> SyncChainSession:
        """See `ChainClient.new_session`."""
        session = self._call(self._client.new_session, cwd, mcp_servers)
        return SyncChainSession(session, self._call)

    def session(self, id: str) -> SyncChainSession:
        """See `ChainClient.session`."""
        return SyncChainSession(self._call(self._client.session, id), self._call)

    def request(self, method: str, params: Any = None) -> Any:
        """See `ChainClient.request`."""
        return self._call(self._client.request, method, params)


class SyncChainSession:
    """A session of a `SyncChainClient`; see `ChainSession`."""

    def __init__(self, session: ChainSession, call: Call) -> None:
        self._session: ChainSession = session
        self._call: Call = call

    @property
    def id(self) -> str:
        """The session id."""
        return self._session.id

    def prompt(self, prompt: str | Sequence[Any]) -> TurnResult:
        """See `ChainSession.prompt`."""
        with self.turn(prompt) as turn:
            return turn.wait()

    def turn(self, prompt: str | Sequence[Any]) -> SyncChainTurn:
        """A prompt; its updates are read while the turn runs: `with`, then `for`."""
        return SyncChainTurn(self._session.turn(prompt), self._call)

    def cancel(self) -> None:
        """Cancel the running turn, from any thread; it ends with the stop reason `cancelled`."""
        self._call(self._session.cancel)


class SyncChainTurn:
    """A prompt turn, as a context manager and an iterator over its updates; see `ChainTurn`."""

    def __init__(self, turn: ChainTurn, call: Call) -> None:
        self._turn: ChainTurn = turn
        self._call: Call = call

    @property
    def result(self) -> TurnResult:
        """See `ChainTurn.result`."""
        return self._turn.result

    def wait(self) -> TurnResult:
        """Wait for the end of the turn, without its updates; raises its error."""
        result: TurnResult = self._call(self._turn.wait)
        return result

    def __enter__(self) -> SyncChainTurn:
        self._call(self._turn.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._turn.__aexit__, kind, exc, traceback)

    def __iter__(self) -> SyncChainTurn:
        return self

    def __next__(self) -> SessionUpdate:
        """See `ChainTurn.__anext__`."""
        try:
            update: SessionUpdate = self._call(self._turn.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return update


async def _call_back(function: Callable[..., Any], argument: Any) -> Any:
    return await trio.to_thread.run_sync(function, argument, abandon_on_cancel=True)
