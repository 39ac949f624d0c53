"""Access control for a request: Host, Origin, and authentication by token or certificate. Pure.

Input: the headers of a request and its TCP peer. Output: the name of its token, or a `Refusal`. The
checks of Host (DNS rebinding) and Origin are against web pages: a browser sets both headers
truthfully. Certificates have been verified by TLS before.

A server is one user's: all tokens and certificates are devices of this user, and each may use every
connection and session.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

import attrs

from conductor.acp import CONNECTION_HEADER, SESSION_HEADER

__all__ = [
    "ALLOWED_METHODS",
    "AccessPolicy",
    "Refusal",
    "TcpPeer",
    "host_name_of",
    "join_headers",
    "read_tokens",
]

_TOKEN_DIGEST = re.compile(r"(?:(?P<name>[^:]*):)?\s*sha256:(?P<digest>[0-9A-Fa-f]{64})")
ALLOWED_METHODS = "GET, POST, DELETE, OPTIONS"
_HOST_HEADER = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:@\[\]\s]*))(?::[0-9]*)?")
_ALLOWED_HEADERS = (
    f"authorization, content-type, accept, {CONNECTION_HEADER}, {SESSION_HEADER}, last-event-id"
)
_EXPOSED_HEADERS = f"{CONNECTION_HEADER.title()}, {SESSION_HEADER.title()}"


@attrs.frozen
class Refusal:
    """An HTTP status, the text of the response, and further headers."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class TcpPeer:
    """The remote end of a TCP connection."""

    address: str
    local: str
    """The local address of the connection."""
    has_certificate: bool = False
    """Whether it has shown a certificate, which TLS has verified."""
    secure: bool = False
    user: int | None = None
    """User id of its process, if it is on this machine (`peer_user`)."""


@attrs.frozen
class AccessPolicy:
    """Requirements for a request."""

    tokens: Mapping[bytes, str] = attrs.field(factory=dict, repr=False)
    """Names of tokens by their SHA-256. Empty: no token is required."""
    certificates: bool = False
    """Whether a client certificate is required."""
    hosts: frozenset[str] = frozenset()
    """Allowed names in `Host`, besides the addresses of the listeners."""
    origins: frozenset[str] = frozenset()
    user: int | None = None
    """Processes of other users of this machine, except root, are refused."""

    @property
    def authenticates(self) -> bool:
        return bool(self.tokens) or self.certificates

    def authenticate(self, headers: Mapping[str, str], peer: TcpPeer) -> str | Refusal:
        """The name of a request's token (empty if none is required), or a refusal."""
        refusal = self._refusal(headers, peer)
        if refusal is not None:
            return refusal
        if self.certificates and not peer.has_certificate:
            return Refusal(401, "a client certificate is required")
        if not self.tokens:
            return ""
        name = self._token_name(headers.get("authorization", ""))
        if name is None:
            challenge = (("www-authenticate", 'Bearer realm="acp"'),)
            return Refusal(401, "a valid bearer token is required", challenge)
        return name

    def cors(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """CORS headers of a response, for a page of an allowed origin."""
        if not self.origins:
            return []
        vary = [("vary", "Origin")]
        origin = headers.get("origin")
        if origin is None or origin not in self.origins:
            return vary
        return [
            *vary,
            ("access-control-allow-origin", origin),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", _EXPOSED_HEADERS),
        ]

    def preflight(
        self, headers: Mapping[str, str], peer: TcpPeer
    ) -> list[tuple[str, str]] | Refusal:
        """Headers of the response to OPTIONS, which browsers send without credentials."""
        refusal = self._refusal(headers, peer)
        if refusal is not None:
            return refusal
        return [
            ("allow", ALLOWED_METHODS),
            ("access-control-allow-methods", ALLOWED_METHODS),
            ("access-control-allow-headers", _ALLOWED_HEADERS),
            ("access-control-max-age", "600"),
        ]

    def _refusal(self, headers: Mapping[str, str], peer: TcpPeer) -> Refusal | None:
        if self.user is not None and peer.user not in (None, 0, self.user):
            return Refusal(403, "another user of this machine: this server has no tokens")
        return self._check_host(headers, peer) or self._check_origin(headers)

    def _check_host(self, headers: Mapping[str, str], peer: TcpPeer) -> Refusal | None:
        host = host_name_of(headers.get("host", ""))
        ours = {peer.local, *self.hosts}
        if _is_loopback(peer.local):
            ours |= {"localhost", "127.0.0.1", "::1"}
        if host and host in ours:
            return None
        return Refusal(421, "the Host header names no host of this server (see --host)")

    def _check_origin(self, headers: Mapping[str, str]) -> Refusal | None:
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return None
        return Refusal(403, "the Origin is not allowed (see --allow-origin)")

    def _token_name(self, authorization: str) -> str | None:
        """The name for a bearer token, in constant time for tokens of one length."""
        scheme, _, token = authorization.partition(" ")
        shown = _digest(token.strip())
        found = None
        for digest, name in self.tokens.items():
            if hmac.compare_digest(digest, shown):
                found = name
        return found if scheme.lower() == "bearer" else None


def read_tokens(lines: Iterable[str]) -> dict[bytes, str]:
    """Parse a token file into `AccessPolicy.tokens`.

    One `name:token` or token per line, `#` begins a comment. A digest may replace the token:
    `sha256:` and 64 hexadecimal digits. A token without a name is named by its digest.
    Raises `ValueError`; its text contains no token.
    """
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if (match := _TOKEN_DIGEST.fullmatch(text)) is not None:
            digest = bytes.fromhex(match["digest"])
            tokens[digest] = (match["name"] or "").strip() or digest.hex()[:12]
            continue
        name, colon, token = text.partition(":")
        name, token = (name.strip(), token.strip()) if colon else ("", text)
        if len(token) < _MIN_LENGTH or any(char.isspace() for char in token):
            raise ValueError(
                f"line {number}: a token is {_MIN_LENGTH} characters at least, without spaces "
                "(how about `openssl rand -hex 32`?)"
            )
        digest = _digest(token)
        tokens[digest] = name or digest.hex()[:12]
    return tokens


def join_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; different values of one name are joined (RFC 9110 §5.3)."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        seen = values.setdefault(name.decode("latin-1").lower(), [])
        if (text := value.decode("latin-1").strip()) not in seen:
            seen.append(text)
    return {name: ", ".join(each) for name, each in values.items()}


def host_name_of(host: str) -> str:
    """Name or address in a `Host` header: lower case, without port and brackets.

    Empty if the header is not valid.
    """
    match = _HOST_HEADER.fullmatch(host)
    return "" if match is None else (match["v6"] or match["name"]).removesuffix(".").lower()


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_MIN_LENGTH = 16
