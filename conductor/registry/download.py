"""Downloads for the registry: https only, bounded in size; the same rules apply to redirects.

`http` is accepted for loopback addresses alone. A URL with a user part is refused: it would be
shown in messages and process lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from conductor.errors import RegistryError

if TYPE_CHECKING:
    import httpx2

__all__ = ["check_url", "display_url", "fetch_bytes", "fetch_file"]

MAX_ARCHIVE_BYTES: Final = 512 << 20
_MAX_REDIRECTS: Final = 5
_SILENCE: Final = 13.0
"""Seconds without a byte after which a download fails."""
_OFFLINE_HELP: Final = (
    "this needs the network once; check the connection and the proxy variables"
    " (HTTPS_PROXY, NO_PROXY)"
)


def fetch_bytes(url: str, limit: int) -> bytes:
    """The body at a URL. Raises `RegistryError` if it has more than `limit` bytes."""
    found = bytearray()
    _fetch(url, limit, found.extend)
    return bytes(found)


def fetch_file(url: str, path: Path, limit: int = MAX_ARCHIVE_BYTES) -> str:
    """Download to a new file; returns its SHA-256 in hex. Raises `RegistryError`."""
    digest = hashlib.sha256()
    with open(path, "xb") as file:

        def keep(chunk: bytes) -> None:
            digest.update(chunk)
            file.write(chunk)

        _fetch(url, limit, keep)
    return digest.hexdigest()


def display_url(url: str) -> str:
    """The URL for messages: without its query, which may have a token."""
    return url.partition("?")[0]


def check_url(url: str, *, redirected: bool = False) -> None:
    """Raise `RegistryError` unless the URL is https, or http to a loopback address."""
    what = "a redirect leads to" if redirected else "this is"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise RegistryError(f"{what} no URL: {display_url(url)!r}") from None
    if parts.username is not None or parts.password is not None:
        raise RegistryError(f"a URL with a user or a password is refused (host {host})")
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and _is_loopback(host):
        return
    raise RegistryError(f"only https is allowed, {what} {display_url(url)}")


def _fetch(url: str, limit: int, sink: Callable[[bytes], object]) -> None:
    import httpx2

    check_url(url)
    shown = display_url(url)
    try:
        with (
            httpx2.Client(
                timeout=_SILENCE,
                follow_redirects=True,
                max_redirects=_MAX_REDIRECTS,
                trust_env=not _is_loopback(urlsplit(url).hostname or ""),
                event_hooks={"response": [_check_redirect]},
            ) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                status = f"{response.status_code} {response.reason_phrase}".strip()
                raise RegistryError(f"{display_url(str(response.url))} answers {status}")
            size = 0
            for chunk in response.iter_raw():  # nothing is decompressed: it was not asked for
                size += len(chunk)
                if size > limit:
                    raise RegistryError(f"{shown} is larger than {limit >> 20} MiB: refused")
                sink(chunk)
    except httpx2.TooManyRedirects:
        raise RegistryError(f"{shown}: more than {_MAX_REDIRECTS} redirects") from None
    except httpx2.TimeoutException as exc:
        host = exc.request.url.netloc.decode()
        message = f"{shown} cannot be fetched: no answer from {host} in {_SILENCE:g} s"
        raise RegistryError(message, _OFFLINE_HELP) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        reason = str(exc) or type(exc).__name__
        raise RegistryError(f"{shown} cannot be fetched: {reason}", _OFFLINE_HELP) from None


def _check_redirect(response: httpx2.Response) -> None:
    """Raise `RegistryError` for a redirect to where a download may not begin, or out of https."""
    if not response.has_redirect_location:
        return
    url = str(response.url)
    try:
        target = urljoin(url, response.headers["location"])
    except ValueError:
        raise RegistryError(f"a redirect of {display_url(url)} leads to no URL") from None
    check_url(target, redirected=True)
    if url.startswith("https:") and not target.startswith("https:"):
        raise RegistryError(f"a redirect leads from https to {display_url(target)}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
