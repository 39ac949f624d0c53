"""Which cookie goes where."""

from __future__ import annotations

from http.cookiejar import CookieJar

from conductor.network.address import RemoteAddress
from conductor.network.cookies import cookies_for, store_cookies


def test_cookies_come_back_to_the_server_that_set_them_and_to_no_other():
    jar = CookieJar()
    here = RemoteAddress.from_url("ws://127.0.0.1:8765", {})
    store_cookies(here, [(b"Set-Cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2; HttpOnly")], jar)

    assert set((cookies_for(here, jar) or "").split("; ")) == {"a=1", "b=2"}
    assert cookies_for(RemoteAddress.from_url("ws://127.0.0.2:8765", {}), jar) is None


def test_a_secure_cookie_needs_an_encrypted_connection():
    jar = CookieJar()
    store_cookies(
        RemoteAddress.from_url("wss://example.org", {}),
        [(b"set-cookie", b"a=1; Secure; Path=/")],
        jar,
    )

    assert cookies_for(RemoteAddress.from_url("https://example.org", {}), jar) == "a=1"
    assert cookies_for(RemoteAddress.from_url("ws://example.org", {}), jar) is None
