"""What a server's refusal means for people: the status, its words, and what to try. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from conductor.network.address import RemoteAddress

__all__ = ["refusal_message", "server_text"]

_HELP: Final = {
    401: "; it wants to know who asks: `headers: {Authorization: …}`, or `--token-file`",
    403: "; who asks may not do this: look at `headers`, or at `tls` for a certificate",
    404: "; is this the path of its endpoint?",
    405: "; is this the path of its endpoint?",
    407: "; the proxy of the environment wants to know who asks: `http://user:password@…`",
    426: "; it wants another protocol: try `ws://` for `http://`, or the other way round",
}
_BAD_TOKEN_HELP: Final = "; it does not know the token, or the user, that it was told"
_MAX_TEXT: Final = 200


def refusal_message(address: RemoteAddress, status: int, body: bytes) -> str:
    """For a server that does not let us in."""
    knows_us = any(name.lower() == "authorization" for name in address.headers)
    help = _BAD_TOKEN_HELP if status == 401 and knows_us else _HELP.get(status, "")
    return f"was refused at {address.display_url}: {_status_text(status)}{server_text(body)}{help}"


def server_text(body: bytes) -> str:
    """What the server says about it, if that is a short text and not a page."""
    text = body[: 4 * _MAX_TEXT].decode(errors="replace").strip()
    if not text or text.startswith("<"):
        return ""
    line = "".join(char if char.isprintable() else " " for char in text)
    return f" ({line[:_MAX_TEXT]}{'…' if len(line) > _MAX_TEXT else ''})"


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
