"""A chain in a program without an event loop. The chain runs in a thread that runs trio.

with conductor.open_chain_sync("review.yaml") as client:
    print(client.new_session("/project").prompt("Review the last commit").text)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from conductor.chainfile import ChainFile
from conductor.client.chain_core import (
    ChainCore,
    ChainSettings,
    SessionCore,
    load_agent_chain,
    open_core,
)
from conductor.client.chain_thread import ChainThread
from conductor.client.turn_core import TurnCore, TurnResult
from conductor.errors import ConnectionClosed

if TYPE_CHECKING:
    from conductor.client.turn_core import Initialized, SessionUpdate
    from conductor.schema import v1, v2


__all__ = ["SyncChainClient", "SyncChainSession", "SyncChainTurn", "open_chain_sync"]

T = TypeVar("T")


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
    file = load_agent_chain(chain)
    settings = ChainSettings(
        _call_back, permission, handlers or {}, capabilities or {}, version=version
    )
    thread = ChainThread(lambda: open_core(file, settings))
    thread.start()
    try:
        yield SyncChainClient(_result(thread.opened, thread.cancel), thread)
    except BaseException as exc:
        thread.stop()
        failure = _result(thread.ended, thread.cancel)
        if failure is not None and isinstance(exc, ConnectionClosed):
            raise failure from exc  # the reason why the connection was closed
        raise
    else:
        thread.stop()
        failure = _result(thread.ended, thread.cancel)
        if failure is not None:
            raise failure
    finally:
        thread.join()


class SyncChainClient:
    """The client of a running chain; see `open_chain_sync`."""

    def __init__(self, core: ChainCore, thread: ChainThread[ChainCore]) -> None:
        self._core: ChainCore = core
        self._thread: ChainThread[ChainCore] = thread

    @property
    def initialized(self) -> Initialized:
        """See `ChainClient.initialized`."""
        answer: Initialized = self._core.initialized
        return answer

    def new_session(
        self, cwd: str | os.PathLike[str] | None = None, mcp_servers: Sequence[Any] = ()
    ) -> SyncChainSession:
        """See `ChainClient.new_session`."""
        core = _call(self._thread, self._core.new_session, cwd, mcp_servers)
        return SyncChainSession(core, self._thread)

    def session(self, id: str) -> SyncChainSession:
        """See `ChainClient.session`."""
        core = _call(self._thread, self._core.existing_session, id)
        return SyncChainSession(core, self._thread)

    def request(self, method: str, params: Any = None) -> Any:
        """See `ChainClient.request`."""
        return _call(self._thread, self._core.request, method, params)


class SyncChainSession:
    """A session of a `SyncChainClient`; see `ChainSession`."""

    def __init__(self, core: SessionCore, thread: ChainThread[ChainCore]) -> None:
        self._core: SessionCore = core
        self._thread: ChainThread[ChainCore] = thread

    @property
    def id(self) -> str:
        """The session id."""
        return self._core.id

    def prompt(self, prompt: str | Sequence[Any]) -> TurnResult:
        """See `ChainSession.prompt`."""
        with self.turn(prompt) as turn:
            return turn.wait()

    def turn(self, prompt: str | Sequence[Any]) -> SyncChainTurn:
        """A prompt; its updates are read while the turn runs: `with`, then `for`."""
        return SyncChainTurn(self._core, self._thread, prompt)

    def cancel(self) -> None:
        """Cancel the running turn, from any thread; it ends with the stop reason `cancelled`."""
        self._thread.run_soon(self._core.cancel)


class SyncChainTurn:
    """A prompt turn, as a context manager and an iterator over its updates; see `ChainTurn`."""

    def __init__(
        self, session: SessionCore, thread: ChainThread[ChainCore], prompt: str | Sequence[Any]
    ) -> None:
        self._session: SessionCore = session
        self._thread: ChainThread[ChainCore] = thread
        self._prompt: str | Sequence[Any] = prompt
        self._core: TurnCore | None = None
        self._updates: deque[SessionUpdate] = deque()

    @property
    def result(self) -> TurnResult:
        """See `ChainTurn.result`."""
        if self._core is None or self._core.result is None:
            raise RuntimeError("the turn has no result yet: read its updates, or call `wait()`")
        return self._core.result

    def wait(self) -> TurnResult:
        """Wait for the end of the turn, without its updates; raises its error."""
        result: TurnResult = _call(self._thread, self._session.finish, self._begun)
        return result

    def __enter__(self) -> SyncChainTurn:
        self._core = _call(self._thread, self._session.begin, self._prompt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._core is not None:
            _call(self._thread, self._session.leave, self._core)

    def __iter__(self) -> SyncChainTurn:
        return self

    def __next__(self) -> SessionUpdate:
        """See `ChainTurn.__anext__`."""
        if not self._updates:
            self._updates.extend(_call(self._thread, self._session.updates, self._begun))
        if not self._updates:
            self.wait()
            raise StopIteration
        return self._updates.popleft()

    @property
    def _begun(self) -> TurnCore:
        if self._core is None:
            raise RuntimeError("the turn has not begun: enter its block")
        return self._core


async def _call_back(function: Callable[..., Any], argument: Any) -> Any:
    return await trio.to_thread.run_sync(function, argument, abandon_on_cancel=True)


def _call(
    thread: ChainThread[ChainCore], function: Callable[..., Awaitable[Any]], *args: Any
) -> Any:
    call = thread.submit(function, *args)
    return _result(call.future, call.cancel)


def _result(future: Future[T], cancel: Callable[[], None]) -> T:
    """Wait for a future of the thread; Ctrl-C cancels what runs there, and waits for its end."""
    try:
        return future.result()
    except BaseException:
        if not future.done():
            cancel()
            wait([future])
        raise
