"""One HTTP POST, with the standard library, in a thread."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import attrs
import trio

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
        # An abandoned thread ends by its own timeout, which is the same.
        return await trio.to_thread.run_sync(
            _post, url, data, dict(headers), seconds, abandon_on_cancel=True
        )
    return HttpReply(None, problem=f"no answer within {seconds:g} s")


def _post(url: str, data: bytes, headers: dict[str, str], seconds: float) -> HttpReply:
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=seconds) as response:
            return HttpReply(response.status, response.read(_MAX_BODY).decode(errors="replace"))
    except urllib.error.HTTPError as exc:
        with exc:
            return HttpReply(exc.code, exc.read(_MAX_BODY).decode(errors="replace"))
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "reason", exc)
        return HttpReply(None, problem=getattr(reason, "strerror", None) or type(reason).__name__)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
