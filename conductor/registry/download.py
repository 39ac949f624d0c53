"""Downloads for the registry: https only, bounded in size; the same rules apply to redirects.

`http` is accepted for loopback addresses alone. A URL with a user part is refused: it would be
shown in messages and process lists.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from conductor.errors import RegistryError

if TYPE_CHECKING:
    import httpx2

__all__ = ["check_url", "display_url", "fetch_bytes", "fetch_file"]

MAX_ARCHIVE_BYTES: Final = 512 << 20
_MAX_REDIRECTS: Final = 5
_SILENCE: Final = 13.0
"""Seconds without a byte, looking up the host's name included, after which a download fails."""
_CHUNKS: Final = 16
"""Chunks that wait to be written."""
_LEFT_INTERVAL: Final = 1.0
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
    """Pass the body to `sink`. A thread reads it: nothing else bounds the look-up of a name."""
    import httpx2  # noqa: F401  before the thread that uses it

    check_url(url)
    read: Queue[bytes | Exception | None] = Queue(_CHUNKS)
    left = threading.Event()
    threading.Thread(target=_read, args=(url, limit, read, left), daemon=True).start()
    try:
        while (item := read.get(timeout=_SILENCE)) is not None:
            if isinstance(item, Exception):
                raise item
            sink(item)
    except Empty:
        host = urlsplit(url).netloc
        message = f"{display_url(url)} cannot be fetched: no answer from {host} in {_SILENCE:g} s"
        raise RegistryError(message, _OFFLINE_HELP) from None
    finally:
        left.set()


def _read(
    url: str, limit: int, read: Queue[bytes | Exception | None], left: threading.Event
) -> None:
    """Put the chunks of the body into the queue, then None, or the error."""

    def put(item: bytes | Exception | None) -> None:
        while not left.is_set():
            try:
                return read.put(item, timeout=_LEFT_INTERVAL)
            except Full:
                continue
        raise _Left

    try:
        try:
            _stream(url, limit, put)
        except RegistryError as exc:
            put(exc)
        else:
            put(None)
    except _Left:
        pass


def _stream(url: str, limit: int, sink: Callable[[bytes], object]) -> None:
    import httpx2

    shown = display_url(url)
    try:
        with _response(url) as response:
            if response.status_code != 200:
                status = f"{response.status_code} {response.reason_phrase}".strip()
                raise RegistryError(f"{display_url(str(response.url))} answers {status}")
            size = 0
            for chunk in response.iter_raw():  # nothing is decompressed: it was not asked for
                size += len(chunk)
                if size > limit:
                    raise RegistryError(f"{shown} is larger than {limit >> 20} MiB: refused")
                sink(chunk)
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        reason = str(exc) or type(exc).__name__
        raise RegistryError(f"{shown} cannot be fetched: {reason}", _OFFLINE_HELP) from None


class _Left(Exception):
    """The reader of a download has left."""


@contextmanager
def _response(url: str) -> Iterator[httpx2.Response]:
    import httpx2

    for _ in range(_MAX_REDIRECTS + 1):
        host = urlsplit(url).hostname or ""
        with (
            httpx2.Client(timeout=30.0, trust_env=not _is_loopback(host)) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if not response.is_redirect:
                yield response
                return
            target = _redirected(url, response.headers.get("location", ""))
        check_url(target, redirected=True)
        if url.startswith("https:") and not target.startswith("https:"):
            raise RegistryError(f"a redirect leads from https to {display_url(target)}")
        url = target
    raise RegistryError(f"{display_url(url)}: more than {_MAX_REDIRECTS} redirects")


def _redirected(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise RegistryError(f"a redirect of {display_url(url)} leads to no URL") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
