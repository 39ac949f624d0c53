"""Open a byte stream to a remote address: TCP, an HTTP proxy from the environment, TLS.

The variables are `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`; the stream is a tunnel
through the proxy (`CONNECT`, RFC 9110 §9.3.6).

Every failure becomes `Unreachable`, with a text that names the cause and a remedy.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # typeshed has only one of them
    getproxies_environment,
    proxy_bypass_environment,
)

import trio

from conductor.chainfile.model import Tls
from conductor.log import get_logger
from conductor.network.address import RemoteAddress, basic_authorization
from conductor.network.sockets import client_keep_alive

__all__ = [
    "HttpProxyError",
    "TlsConfigError",
    "Unreachable",
    "causes",
    "client_context",
    "describe_os_error",
    "describe_tls_error",
    "display_url",
    "is_connection_refused",
    "network_errors",
    "open_stream",
    "proxy_for",
    "server_context",
    "warn_about_plaintext_credentials",
]

log: Final = get_logger(component="conductor")

_MAX_HEAD: Final = 64 * 1024
"""Bytes of the response of a proxy."""
_NOTHING_LISTENS: Final = "connection refused: is it running there?"


class Unreachable(Exception):
    """No connection to the address.

    `status`: HTTP status of a refusal; `refused`: the TCP connection was refused.
    """

    def __init__(self, reason: str, status: int | None = None, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.refused = refused


class HttpProxyError(Exception):
    """The proxy cannot be used, or refused the tunnel."""


class TlsConfigError(Exception):
    """A file named by `tls:` cannot be used."""


async def open_stream(
    address: RemoteAddress, ping_timeout: float, alpn: Sequence[str] = ("http/1.1",)
) -> trio.abc.Stream:
    """Connect, with keep-alive for `ping_timeout` seconds. Raises `Unreachable`."""
    with network_errors(address):
        context = client_context(address.tls, alpn) if address.is_secure else None
        proxy = proxy_for(address)
        stream: trio.abc.Stream
        if proxy is None:
            stream = await _connect_tcp(address.host, address.port, ping_timeout)
        else:
            stream = await _connect_through_proxy(proxy, address, ping_timeout)
        if context is None:
            return stream
        return await _start_tls(stream, context, address.tls.server_name or address.host)


def proxy_for(address: RemoteAddress) -> str | None:
    """URL of the proxy for this address, or `None`. Raises `HttpProxyError`."""
    proxies = getproxies_environment()
    if proxy_bypass_environment(f"{address.host}:{address.port}", proxies):
        return None
    url = proxies.get("https" if address.is_secure else "http") or proxies.get("all")
    if not url:
        return None
    url = url if "://" in url else f"http://{url}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise HttpProxyError(
            f"the proxy {display_url(url)} of the environment is not an HTTP proxy"
        )
    return url


def display_url(url: str) -> str:
    """The URL of a proxy without its user part, for logs and errors."""
    parts: SplitResult = urlsplit(url)
    return (
        f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else parts.hostname or url
    )


def warn_about_plaintext_credentials(address: RemoteAddress) -> None:
    """Log a warning if credentials would cross the network unencrypted."""
    if address.exposes_credentials:
        safe = f"{address.scheme}s://"
        log.warning("credentials sent in plain text", to=address.display_url, safe=safe)


@contextmanager
def network_errors(address: RemoteAddress) -> Iterator[None]:
    """Convert errors of the network, TLS and a proxy to `Unreachable`."""
    try:
        yield
    except (HttpProxyError, TlsConfigError) as exc:
        raise Unreachable(_reason(address, str(exc))) from exc
    except trio.BrokenResourceError as exc:
        cause = exc.__cause__
        if isinstance(cause, ssl.SSLError):
            raise Unreachable(_reason(address, describe_tls_error(cause))) from exc
        raise Unreachable(_reason(address, "the connection was closed")) from exc
    except ssl.SSLError as exc:
        raise Unreachable(_reason(address, describe_tls_error(exc))) from exc
    except OSError as exc:
        reason = _reason(address, describe_os_error(exc))
        raise Unreachable(reason, refused=is_connection_refused(exc)) from exc


def describe_os_error(error: OSError) -> str:
    """Text for an error of `connect` or name resolution."""
    found = list(causes(error))
    for cause in found:
        if isinstance(cause, socket.gaierror):
            return f"the name of the host is not known ({cause.strerror})"
        if isinstance(cause, ConnectionRefusedError):
            return _NOTHING_LISTENS
    first = next((cause for cause in found if getattr(cause, "strerror", None)), error)
    return str(getattr(first, "strerror", None) or first).lower()


def is_connection_refused(error: BaseException) -> bool:
    """Whether the TCP connection was refused at every address tried."""
    attempts = [each for each in causes(error) if isinstance(each, OSError)]
    refused = [each for each in attempts if isinstance(each, ConnectionRefusedError)]
    return bool(refused) and all(each in refused or each.errno is None for each in attempts)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those below it: those of the single attempts, for several addresses."""
    yield error
    for cause in (error.__cause__ or error.__context__, *getattr(error, "exceptions", ())):
        if cause is not None:
            yield from causes(cause)


def client_context(tls: Tls, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Client context for the settings in `tls:`. Raises `TlsConfigError`."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError) as exc:
        raise _config_error("ca", tls.ca, exc) from exc
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key, password=_refuse_password)
        except (OSError, ssl.SSLError, _EncryptedKeyError) as exc:
            raise _config_error("cert", tls.cert, exc) from exc
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def server_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """TLS 1.2 or later with ALPN for HTTP/2 and HTTP/1.1; `cert` and `key` are PEM files.

    With `client_ca` (a PEM file) a client may show a certificate, which is verified. It is
    optional at this level, since `/health` is answered without one. Raises `OSError`, of which
    `ssl.SSLError` is one, for files that cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def describe_tls_error(error: ssl.SSLError) -> str:
    """Cause of a failed handshake, and a remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); "
            "`tls: {ca: …}`, or `--ca`, names the authority that signed it"
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in reason and "certificate" in reason:
        return f"it rejected the certificate ({reason}); `tls: {{cert: …, key: …}}` names one"
    hint = "; does it speak TLS at all?" if "eof" in reason or "wrong version" in reason else ""
    return f"TLS failed ({reason}){hint}"


async def _connect_tcp(host: str, port: int, ping_timeout: float) -> trio.SocketStream:
    stream = await trio.open_tcp_stream(host, port)
    for option in client_keep_alive(ping_timeout):
        stream.setsockopt(*option)
    return stream


async def _connect_through_proxy(
    proxy: str, address: RemoteAddress, ping_timeout: float
) -> trio.abc.Stream:
    parts = urlsplit(proxy)
    is_secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
    try:
        stream: trio.abc.Stream = await _connect_tcp(host, port, ping_timeout)
    except OSError as exc:
        raise HttpProxyError(f"the proxy {display_url(proxy)}: {describe_os_error(exc)}") from exc
    if is_secure:
        stream = await _start_tls(stream, ssl.create_default_context(), host)
    try:
        await _open_tunnel(stream, proxy, address)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def _open_tunnel(stream: trio.abc.Stream, proxy: str, address: RemoteAddress) -> None:
    """Ask the proxy at the other end of `stream` for a tunnel. Raises `HttpProxyError`."""
    parts = urlsplit(proxy)
    target = f"{f'[{address.host}]' if ':' in address.host else address.host}:{address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if parts.username is not None:
        lines.append(f"Proxy-Authorization: {basic_authorization(parts.username, parts.password)}")
    await stream.send_all("\r\n".join([*lines, "", ""]).encode())
    answer = await _read_head(stream)
    status = answer.partition(b"\r\n")[0].split(None, 2)
    if len(status) < 2 or not status[1].startswith(b"2"):
        words = b" ".join(status[1:]).decode("latin-1")
        raise HttpProxyError(f"the proxy {display_url(proxy)} refused to connect ({words})")


async def _read_head(stream: trio.abc.Stream) -> bytes:
    """Read the head of the response. Byte by byte: the bytes after it belong to the tunnel."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await stream.receive_some(1)
        if not byte or len(head) > _MAX_HEAD:
            raise HttpProxyError("the proxy closed the connection without an answer")
        head += byte
    return head


async def _start_tls(
    stream: trio.abc.Stream, context: ssl.SSLContext, name: str
) -> trio.SSLStream[trio.abc.Stream]:
    encrypted = trio.SSLStream(stream, context, server_hostname=name, https_compatible=True)
    try:
        await encrypted.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return encrypted


def _reason(address: RemoteAddress, reason: str) -> str:
    return f"could not be reached at {address.display_url}: {reason}"


class _EncryptedKeyError(Exception):
    def __str__(self) -> str:
        return "the key is encrypted, and there is no prompt for its password"


def _refuse_password() -> str:
    raise _EncryptedKeyError


def _config_error(key: str, file: str | None, error: Exception) -> TlsConfigError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return TlsConfigError(f"`tls.{key}` cannot be used: {file}: {reason}")
