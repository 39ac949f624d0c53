"""Requests that two HTTP implementations can read differently, with a second request behind the
part that one of them takes for the body."""

from __future__ import annotations

HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

HTTP1 = {
    "both lengths": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "both lengths, reversed": (
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"0\r\n\r\n",
    ),
    "two codings": (
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"0\r\n\r\n",
    ),
    "an unknown coding": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "a list of codings": (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "a space before the colon": (
        b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n",
        b"0\r\n\r\n",
    ),
    "a bare line feed": (
        b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"0\r\n\r\n",
    ),
    "a vertical tab": (b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "two content lengths": (b"Content-Length: 3\r\nContent-Length: 0\r\n", b"abc"),
    "a sign": (b"Content-Length: +3\r\n", b"abc"),
    "a hexadecimal length": (b"Content-Length: 0x3\r\n", b"abc"),
    "an underscore": (b"Content-Length: 0_3\r\n", b"abc"),
    "a negative length": (b"Content-Length: -1\r\n", b""),
    "digits of another script": ("Content-Length: ٣\r\n".encode(), b"abc"),
    "a chunk's size with an underscore": (
        b"Transfer-Encoding: chunked\r\n",
        b"0_2\r\nab\r\n0\r\n\r\n",
    ),
    "a chunk's size with a prefix": (b"Transfer-Encoding: chunked\r\n", b"0x2\r\nab\r\n0\r\n\r\n"),
    "bytes behind a chunk": (b"Transfer-Encoding: chunked\r\n", b"2\r\nabXX0\r\n\r\n"),
    "line feeds around a chunk": (b"Transfer-Encoding: chunked\r\n", b"2\nab\n0\n\n"),
}
"""By what is odd: header lines and the body."""

HTTP2 = {
    "a transfer coding": [(b"transfer-encoding", b"chunked")],
    "a length that is too small": [(b"content-length", b"1")],
    "a length that is too large": [(b"content-length", b"1000")],
    "two lengths": [(b"content-length", b"2"), (b"content-length", b"0")],
    "a list of lengths": [(b"content-length", b"2, 0")],
    "a sign": [(b"content-length", b"+2")],
    "a header of the connection": [(b"connection", b"close, authorization")],
    "a line break in a value": [(b"x", b"a\r\nauthorization: Bearer other")],
    "a line break in a name": [(b"x: y\r\nz", b"a")],
    "a colon in a name": [(b"host: evil\r\nx", b"a")],
    "capitals in a name": [(b"Authorization", b"Bearer other")],
    "NUL in a value": [(b"x", b"a\0b")],
    "another host": [(b"host", b"evil.example")],
    "a second path": [(b":path", b"/health")],
    "an unknown pseudo-header": [(b":evil", b"x")],
    "a line break in the path": [(b":path", b"/acp\r\nx: y")],
    "a request in the path": [(b":path", b"/acp HTTP/1.1\r\nx: y")],
    "a request in the method": [(b":method", b"POST /acp HTTP/1.1\r\nx: y")],
}
"""By what is odd: headers to add or, of a line break in a pseudo-header, to replace."""


def http1(odd: str, host: bytes = b"localhost") -> bytes:
    headers, body = HTTP1[odd]
    head = b"POST /acp HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n" % host
    return head + headers + b"\r\n" + body + HIDDEN


def http2_headers(odd: str, host: bytes) -> list[tuple[bytes, bytes]]:
    usual = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", host),
        (b":path", b"/acp"),
        (b"content-type", b"application/json"),
    ]
    added = HTTP2[odd]
    replaced = dict(added) if b"\r\n" in added[0][1] else {}
    usual = [(name, replaced.get(name, value)) for name, value in usual]
    return usual if replaced.keys() <= dict(usual).keys() and replaced else usual + added
