"""A TLS context for HTTP clients that use no TLS: the default one reads all authorities, 30 ms."""

from __future__ import annotations

import ssl

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
