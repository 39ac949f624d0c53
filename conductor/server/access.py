"""Who may speak to the server: a decision about the headers of a request and who sent it. Pure.

A browser sends its Host and Origin truthfully whatever page made the request, so that no page
reaches us by a name that it made up (DNS rebinding), nor from an origin that is not allowed. A
token says who a client is; so does a certificate, which TLS has checked before.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

import attrs

from conductor.acp import CONNECTION_HEADER, SESSION_HEADER
from conductor.server.client_certificate import NameKind

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
    """An HTTP status, and the reason for people."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class TcpPeer:
    """Whoever is at the other end of a TCP connection."""

    address: str
    local: str
    """The address of ours that it reached."""
    certificate: str | None = None
    """The name in its certificate (`certificates`), where one was asked for and is good."""
    secure: bool = False


@attrs.frozen
class AccessPolicy:
    """What is asked of a request."""

    tokens: Mapping[bytes, str] = attrs.field(factory=dict, repr=False)
    """The names of those who may come in, by the SHA-256 of their tokens. Empty: none is asked."""
    certificates: bool = False
    """Whether a client must show a certificate."""
    client_name: NameKind = "subject"
    """Where in a certificate the client's name is."""
    hosts: frozenset[str] = frozenset()
    """Names that are ours, besides the addresses that we listen on."""
    origins: frozenset[str] = frozenset()

    @property
    def authenticates(self) -> bool:
        return bool(self.tokens) or self.certificates

    def principal(self, headers: Mapping[str, str], peer: TcpPeer) -> str | Refusal:
        """Who sends this, or why it is not let in; the name of whoever nobody asked is empty."""
        refusal = self._check_host(headers, peer) or self._check_origin(headers)
        if refusal is not None:
            return refusal
        names = []
        if self.certificates:
            if peer.certificate is None:
                return Refusal(401, "a client certificate is required")
            names.append(f"certificate {peer.certificate}")
        if self.tokens:
            name = self._token_name(headers.get("authorization", ""))
            if name is None:
                challenge = (("www-authenticate", 'Bearer realm="acp"'),)
                return Refusal(401, "a valid bearer token is required", challenge)
            names.append(f"token {name}")
        return ", ".join(names)

    def cors(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        """What tells a browser that a page of an allowed origin may read the answer."""
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
        """What the answer to OPTIONS says besides; a browser sends it without credentials."""
        refusal = self._check_host(headers, peer) or self._check_origin(headers)
        if refusal is not None:
            return refusal
        return [
            ("allow", ALLOWED_METHODS),
            ("access-control-allow-methods", ALLOWED_METHODS),
            ("access-control-allow-headers", _ALLOWED_HEADERS),
            ("access-control-max-age", "600"),
        ]

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
        """The name that goes with a token; whether and where it is found shows in no time taken."""
        scheme, _, token = authorization.partition(" ")
        shown = _digest(token.strip())
        found = None
        for digest, name in self.tokens.items():
            if hmac.compare_digest(digest, shown):
                found = name
        return found if scheme.lower() == "bearer" else None


def read_tokens(lines: Iterable[str]) -> dict[bytes, str]:
    """Tokens as `AccessPolicy` wants them: `name:token` or a token alone per line, `#` begins a
    comment. In place of a token there may be its digest, `sha256:` and 64 hexadecimal digits.

    A token alone is named by its digest: wherever it stands, and on every server, it is the same
    principal. Raises `ValueError`, for people; no token is in its text.
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
    """By lower-case name; what comes several times, and differs, is one list (RFC 9110 §5.3)."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        seen = values.setdefault(name.decode("latin-1").lower(), [])
        if (text := value.decode("latin-1").strip()) not in seen:
            seen.append(text)
    return {name: ", ".join(each) for name, each in values.items()}


def host_name_of(host: str) -> str:
    """The name or address of a `ComponentHost` header, without port and brackets, in lower case;
    empty where it is none."""
    match = _HOST_HEADER.fullmatch(host)
    return "" if match is None else (match["v6"] or match["name"]).removesuffix(".").lower()


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_MIN_LENGTH = 16
