"""A `ChainThread` for a program that runs asyncio: calls wait in the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import trio

from conductor.client.chain_core import CallBack
from conductor.client.chain_thread import ChainThread
from conductor.errors import ConnectionClosed

__all__ = ["Call", "call_back_in", "open_in_thread"]

T = TypeVar("T")
Call = Callable[..., Awaitable[Any]]
"""Runs an async function of the chain with arguments, and returns its result."""


@asynccontextmanager
async def open_in_thread(
    open: Callable[[], AbstractAsyncContextManager[T]],
) -> AsyncIterator[tuple[T, Call]]:
    """Open a context in a new thread for the block; yields its value and a function to call there.

    The thread has ended after the block, also if the block or the opening is cancelled.
    """
    thread = ChainThread(open)
    thread.start()
    try:
        value = await _result(thread.opened, thread.cancel)
        yield value, partial(_call, thread)
    except BaseException as exc:
        thread.stop()
        failure = await _result(thread.ended, thread.cancel)
        if failure is not None and isinstance(exc, ConnectionClosed):
            raise failure from exc  # the reason why the connection was closed
        raise
    else:
        thread.stop()
        failure = await _result(thread.ended, thread.cancel)
        if failure is not None:
            raise failure
    finally:
        thread.join()


def call_back_in(loop: asyncio.AbstractEventLoop) -> CallBack:
    """Calls functions of the program, async or not, in its event loop."""

    async def call_back(function: Callable[..., Any], argument: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(_called(function, argument), loop)
        token, done = trio.lowlevel.current_trio_token(), trio.Event()

        def set_done(_: Future[Any]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(done.set)

        future.add_done_callback(set_done)
        try:
            await done.wait()
        except trio.Cancelled:
            future.cancel()
            raise
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(f"{function} was cancelled by the program") from None

    return call_back


async def _called(function: Callable[..., Any], argument: Any) -> Any:
    result = function(argument)
    return await result if inspect.isawaitable(result) else result


async def _call(thread: ChainThread[Any], function: Callable[..., Any], *args: Any) -> Any:
    call = thread.submit(function, *args)
    return await _result(call.future, call.cancel)


async def _result(future: Future[T], cancel: Callable[[], None]) -> T:
    """Wait for a future of the thread. Cancelling the task cancels the function; the task waits for
    its end."""
    waiting = asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as exc:
            if cancelled is None:  # anyio cancels a task again and again
                cancel()
            cancelled = exc
    if cancelled is not None:
        if not waiting.cancelled():
            waiting.exception()  # it is not lost: the cancellation is what the task asked for
        raise cancelled
    return waiting.result()
