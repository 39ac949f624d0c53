"""TLS contexts for clients (from `tls:` of a chain file) and servers, and texts for TLS errors."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from conductor.chainfile.model import Tls

__all__ = ["TlsConfigError", "client_context", "describe_tls_error", "server_context"]


class TlsConfigError(Exception):
    """A file named by `tls:` cannot be used."""


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


class _EncryptedKeyError(Exception):
    def __str__(self) -> str:
        return "the key is encrypted, and there is no prompt for its password"


def _refuse_password() -> str:
    raise _EncryptedKeyError


def _config_error(key: str, file: str | None, error: Exception) -> TlsConfigError:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return TlsConfigError(f"`tls.{key}` cannot be used: {file}: {reason}")
