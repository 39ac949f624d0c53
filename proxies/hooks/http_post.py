"""One HTTP POST."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

import attrs
import trio

from conductor.proxy.import_guard import import_in_thread

__all__ = ["HttpReply", "post"]

_MAX_BODY = 65536


@attrs.frozen
class HttpReply:
    """Outcome of a POST."""

    status: int | None
    body: str = ""
    problem: str | None = None
    """Why there is no status. Without the URL, which may hold a token."""


async def post(url: str, data: bytes, headers: Mapping[str, str], *, seconds: float) -> HttpReply:
    """Post JSON. Redirects are not followed: the headers may hold secrets for this host."""
    with trio.move_on_after(seconds):
        return await _post(url, data, headers)
    return HttpReply(None, problem=f"no answer within {seconds:g} s")


async def _post(url: str, data: bytes, headers: Mapping[str, str]) -> HttpReply:
    # Not urllib: a thread cannot be ended while a server sends its answer byte by byte.
    await import_in_thread("httpx2")
    import httpx2

    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
    body = bytearray()
    try:
        async with (
            httpx2.AsyncClient(timeout=None) as client,
            client.stream("POST", url, content=data, headers=headers) as response,
            aclosing(response.aiter_raw()) as chunks,
        ):
            async for chunk in chunks:
                body += chunk
                if len(body) >= _MAX_BODY:
                    break
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as exc:
        return HttpReply(None, problem=_reason(exc))
    return HttpReply(response.status_code, body[:_MAX_BODY].decode(errors="replace"))


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror is not None:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
