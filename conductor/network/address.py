"""Address of a remote component: the parts of its URL, its headers and its TLS settings. Pure.

Headers and the user part of the URL may be secret: errors and logs show only `display_url`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from conductor.chainfile.model import Tls

__all__ = ["RemoteAddress"]

_PORTS: Final = {"ws": 80, "http": 80, "wss": 443, "https": 443}
_DEFAULT_PATH: Final = "/acp"
_CREDENTIAL_HEADERS: Final = frozenset(
    {"authorization", "cookie", "proxy-authorization", "x-api-key"}
)


@attrs.frozen(repr=False)
class RemoteAddress:
    """An endpoint. `scheme`: ws, wss, http or https; `target`: path and query."""

    scheme: str
    host: str
    port: int
    target: str
    headers: Mapping[str, str]
    tls: Tls = attrs.field(factory=Tls)

    @classmethod
    def from_url(
        cls, url: str, headers: Mapping[str, str], tls: Tls | None = None
    ) -> RemoteAddress:
        """Parse a URL that has been validated. The default path is `/acp` (RFD streamable HTTP).

        A user in the URL becomes basic authorization, unless `headers` has an `Authorization`.
        """
        parts = urlsplit(url)
        target = parts.path or _DEFAULT_PATH
        if parts.query:
            target += f"?{parts.query}"
        given = dict(headers)
        if parts.username is not None and not any(
            name.lower() == "authorization" for name in given
        ):
            given["Authorization"] = basic_authorization(parts.username, parts.password)
        host = parts.hostname or ""
        return cls(
            parts.scheme, host, parts.port or _PORTS[parts.scheme], target, given, tls or Tls()
        )

    @property
    def is_secure(self) -> bool:
        return self.scheme in ("wss", "https")

    @property
    def is_websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def exposes_credentials(self) -> bool:
        """Whether credentials would cross the network unencrypted."""
        known = any(name.lower() in _CREDENTIAL_HEADERS for name in self.headers)
        return known and not self.is_secure and not _is_loopback(self.host)

    @property
    def authority(self) -> str:
        """Host and port in the form of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL for requests, without the user part (sent as a header)."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def display_url(self) -> str:
        """The URL for logs and errors, without user and query."""
        return self.url.partition("?")[0]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def basic_authorization(user: str, password: str | None) -> str:
    """Value of a basic authorization header (RFC 7617) for the user part of a URL."""
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
