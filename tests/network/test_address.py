"""URLs, taken apart."""

from __future__ import annotations

import pytest

from conductor.network.address import RemoteAddress


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://example.org", "ws://example.org/acp"),
        ("wss://example.org:443/", "wss://example.org/"),
        ("http://example.org:8765/a/b?c=d", "http://example.org:8765/a/b?c=d"),
        ("https://[::1]:8765", "https://[::1]:8765/acp"),
        ("HTTP://Example.ORG:80/x", "http://example.org/x"),
    ],
)
def test_a_url_without_a_path_is_that_of_the_default_endpoint(url, expected):
    assert RemoteAddress.from_url(url, {}).url == expected


def test_the_user_of_a_url_becomes_a_header_and_people_see_neither_it_nor_the_query():
    address = RemoteAddress.from_url("wss://me:p%40ss@example.org/x?token=t", {})

    assert address.headers == {"Authorization": "Basic bWU6cEBzcw=="}
    assert address.url == "wss://example.org/x?token=t"
    assert address.display_url == "wss://example.org/x"
    assert "p@ss" not in repr(address)


def test_a_header_that_is_given_counts_more_than_the_user_of_a_url():
    address = RemoteAddress.from_url("wss://me:pass@example.org", {"authorization": "Bearer t"})

    assert address.headers == {"authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("url", "headers", "shown"),
    [
        ("ws://example.org", {"authorization": "Bearer x"}, True),
        ("http://10.0.0.7:8765", {"Authorization": "Bearer x"}, True),
        ("http://me:secret@example.org", {}, True),
        ("ws://example.org", {"X-Trace": "1"}, False),
        ("wss://example.org", {"Authorization": "Bearer x"}, False),
        ("ws://127.0.0.2", {"Authorization": "Bearer x"}, False),
        ("http://[::1]:8765", {"Authorization": "Bearer x"}, False),
        ("ws://localhost:8765", {"Authorization": "Bearer x"}, False),
    ],
)
def test_credentials_can_be_read_by_others_beyond_this_machine_without_tls(url, headers, shown):
    assert RemoteAddress.from_url(url, headers).exposes_credentials is shown
