"""Addresses of `--listen`."""

from __future__ import annotations

import pytest

from conductor.server.listen.address import TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8765", TcpAddress("127.0.0.1", 8765)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:80", TcpAddress("::1", 80)),
        ("unix:/run/acp.sock", UnixAddress("/run/acp.sock")),
    ],
)
def test_addresses_are_read(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "8765", ":8765", "a:b", "a:99999", "::1:80", "unix:", "a:-1"])
def test_an_invalid_address_is_refused(text):
    with pytest.raises(ValueError):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("example.org", False),
    ],
)
def test_only_loopback_addresses_are_local(host, loopback):
    assert TcpAddress(host, 1).is_loopback is loopback
