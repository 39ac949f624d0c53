"""What is read of the answer to a hook's POST."""

from __future__ import annotations

import httpx2  # noqa: F401  before the time of a hook
import trio

from proxies.hooks.http_post import post


async def answered(chunk, pause, *, seconds):
    """The reply of a server that sends chunks after the head until it is cut off."""
    ended = trio.Event()

    async def serve(stream):
        try:
            await stream.send_all(b"HTTP/1.1 403 No\r\nContent-Length: 100000000\r\n\r\n")
            while True:
                await stream.send_all(chunk)
                await trio.sleep(pause)
        except trio.BrokenResourceError:
            ended.set()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        port = listener.socket.getsockname()[1]
        reply = await post(f"http://127.0.0.1:{port}/", b"{}", {}, seconds=seconds)
        with trio.fail_after(60):
            await ended.wait()
        nursery.cancel_scope.cancel()
    return reply


async def test_an_answer_without_end_is_cut():
    reply = await answered(bytes(1000), 0, seconds=60)

    assert (reply.status, len(reply.body)) == (403, 65536)


async def test_an_answer_that_comes_slowly_is_not_read_after_the_timeout():
    reply = await answered(b"x", 0.05, seconds=1)

    assert reply.problem == "no answer within 1 s"
