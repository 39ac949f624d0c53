"""A thread that runs trio with one open context, for programs that do not run trio.

The context is entered and left in the thread's main task; `submit` runs functions there. The thread
ends with the context, and `stop` or `cancel` end the context.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import trio

from conductor.errors import ConnectionClosed

__all__ = ["ChainThread", "ThreadCall"]

T = TypeVar("T")
_ENDED: Final = "the chain has ended"


class ThreadCall(Generic[T]):
    """A function that runs in the thread; `future` has its result."""

    def __init__(
        self, thread: ChainThread[Any], function: Callable[..., Awaitable[T]], *args: Any
    ) -> None:
        self.future: Future[T] = Future()
        self._thread: ChainThread[Any] = thread
        self._function: Callable[..., Awaitable[T]] = function
        self._args: tuple[Any, ...] = args
        self._scope: trio.CancelScope = trio.CancelScope()

    def cancel(self) -> None:
        """Cancel the function; `future` has `CancelledError` then, or its result if it was done."""
        self._thread.run_soon(self._scope.cancel)

    async def run(self) -> None:
        """Run the function; its exceptions go to `future`."""
        try:
            with self._scope:
                self.future.set_result(await self._function(*self._args))
                return
        except trio.Cancelled:  # the chain ends
            self.future.set_exception(ConnectionClosed(_ENDED))
            raise
        except Exception as exc:
            self.future.set_exception(exc)
            return
        self.future.set_exception(CancelledError())


class ChainThread(Generic[T]):
    """The thread. `opened` has the context's value, `ended` None or what ended the run."""

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self.opened: Future[T] = Future()
        self.ended: Future[BaseException | None] = Future()
        self._open: Callable[[], AbstractAsyncContextManager[T]] = open
        # A daemon: a program that exits without leaving the context is not kept.
        self._thread = threading.Thread(target=self._run, name="acp-conductor chain", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._scope: trio.CancelScope = trio.CancelScope()
        self._stop: trio.Event = trio.Event()
        self._is_cancelled: bool = False

    def start(self) -> None:
        self._thread.start()

    def submit(self, function: Callable[..., Awaitable[Any]], *args: Any) -> ThreadCall[Any]:
        """Run `function(*args)` in a task of its own."""
        call = ThreadCall(self, function, *args)
        if not self.run_soon(self._start_call, call):
            call.future.set_exception(ConnectionClosed(_ENDED))
        return call

    def run_soon(self, function: Callable[..., object], *args: Any) -> bool:
        """Call a synchronous function in the thread; returns whether the thread still runs trio."""
        if self._token is None:
            return False
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            return False
        return True

    def stop(self) -> None:
        """Leave the context in order."""
        self.run_soon(self._stop.set)

    def cancel(self) -> None:
        """Cancel the context; effective from the start of the thread on."""
        self._is_cancelled = True
        self.run_soon(self._scope.cancel)

    def join(self) -> None:
        """Wait for the thread, after `ended`."""
        self._thread.join()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            trio.run(self._main)
        except BaseException as exc:  # raised where the program enters or leaves the context
            failure = exc
        if not self.opened.done():
            self.opened.set_exception(failure or ConnectionClosed(_ENDED))
            failure = None
        self.ended.set_result(failure)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            if self._is_cancelled:  # before there was a token
                self._scope.cancel()
            async with self._open() as value:
                await self._serve(value)

    async def _serve(self, value: T) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.opened.set_result(value)
            try:
                await self._stop.wait()
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()

    def _start_call(self, call: ThreadCall[Any]) -> None:
        if self._nursery is None:
            call.future.set_exception(ConnectionClosed(_ENDED))
        else:
            self._nursery.start_soon(call.run)
