"""Texts for a refusal by an HTTP server: status, response text, remedy. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from conductor.network.address import RemoteAddress

__all__ = ["refusal_message", "server_text"]

_HELP: Final = {
    401: "; authentication required: `headers: {Authorization: …}`, or `--token-file`",
    403: "; not permitted: check `headers`, or `tls` for a certificate",
    404: "; is this the path of its endpoint?",
    405: "; is this the path of its endpoint?",
    407: "; the HTTP proxy requires authentication: `http://user:password@…`",
    426: "; it expects another protocol: try `ws://` instead of `http://`, or the reverse",
}
_BAD_TOKEN_HELP: Final = "; the token, or the user, is not valid there"
_MAX_TEXT: Final = 200


def refusal_message(address: RemoteAddress, status: int, body: bytes) -> str:
    """Text for a refused connection."""
    has_credentials = any(name.lower() == "authorization" for name in address.headers)
    help = _BAD_TOKEN_HELP if status == 401 and has_credentials else _HELP.get(status, "")
    return f"was refused at {address.display_url}: {_status_text(status)}{server_text(body)}{help}"


def server_text(body: bytes) -> str:
    """The response body in parentheses; empty if there is none or it is an HTML page."""
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
