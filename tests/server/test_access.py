"""Access control by Host, Origin, token and certificate."""

from __future__ import annotations

import hashlib

import pytest

from conductor.server.access import (
    AccessPolicy,
    Refusal,
    TcpPeer,
    host_name_of,
    join_headers,
    read_tokens,
)

LOCAL = TcpPeer("127.0.0.1", "127.0.0.1")
REMOTE = TcpPeer("203.0.113.9", "192.0.2.1")
TOKEN = "0123456789abcdef"
OURS = {"host": "127.0.0.1:8765"}
PAGE = "https://app.example.org"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8765", "[::1]:9", "LOCALHOST", "localhost.:1"]
)
def test_all_local_names_are_accepted_hosts_on_loopback(host):
    assert AccessPolicy().authenticate({"host": host}, LOCAL) == ""


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost, evil"),
        *("[::1]evil.example", "localhost:1@evil.example", "localhost:evil", "[localhost", "[]"),
    ],
)
def test_an_unknown_host_is_refused(host):
    refusal = AccessPolicy().authenticate({"host": host}, LOCAL)

    assert isinstance(refusal, Refusal)
    assert refusal.status == 421


def test_the_local_address_and_configured_names_are_accepted_hosts():
    access = AccessPolicy(hosts=frozenset({"acp.example.org"}))

    assert access.authenticate({"host": "192.0.2.1:80"}, REMOTE) == ""
    assert access.authenticate({"host": "acp.example.org"}, REMOTE) == ""
    assert isinstance(access.authenticate({"host": "localhost"}, REMOTE), Refusal)


@pytest.mark.parametrize(("user", "is_refused"), [(7, False), (0, False), (8, True), (-1, True)])
def test_processes_of_other_users_are_refused_but_for_root(user, is_refused):
    access = AccessPolicy(user=7)
    peer = TcpPeer("127.0.0.1", "127.0.0.1", user=user)

    for answer in (access.authenticate(OURS, peer), access.preflight(OURS, peer)):
        assert (isinstance(answer, Refusal) and answer.status == 403) is is_refused


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:8765", ""])
def test_an_origin_that_is_not_allowed_is_refused(origin):
    refusal = AccessPolicy().authenticate({**OURS, "origin": origin}, LOCAL)

    assert isinstance(refusal, Refusal)
    assert refusal.status == 403


def test_an_allowed_origin_is_admitted_with_cors_headers():
    access = AccessPolicy(origins=frozenset({PAGE}))

    assert access.authenticate({**OURS, "origin": PAGE}, LOCAL) == ""
    assert access.cors({"origin": PAGE}) == [
        ("vary", "Origin"),
        ("access-control-allow-origin", PAGE),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "Acp-Connection-Id, Acp-Session-Id"),
    ]
    assert access.cors({"origin": "https://evil.example"}) == [("vary", "Origin")]
    assert AccessPolicy().cors({"origin": PAGE}) == []


def test_a_preflight_needs_no_token_but_an_allowed_origin():
    access = AccessPolicy(origins=frozenset({PAGE}), tokens=read_tokens([TOKEN]))

    allowed = access.preflight({**OURS, "origin": PAGE}, LOCAL)
    refused = access.preflight({**OURS, "origin": "https://evil.example"}, LOCAL)

    assert not isinstance(allowed, Refusal)
    assert ("access-control-allow-methods", "GET, POST, DELETE, OPTIONS") in allowed
    assert isinstance(refused, Refusal)
    assert refused.status == 403


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        "Bearer \udcff",
    ],
)
def test_a_request_without_a_valid_token_is_refused(authorization):
    access = AccessPolicy(tokens=read_tokens([f"ann:{TOKEN}"]))

    refusal = access.authenticate({**OURS, "authorization": authorization}, LOCAL)

    assert isinstance(refusal, Refusal)
    assert refusal.status == 401
    assert refusal.headers == (("www-authenticate", 'Bearer realm="acp"'),)


def test_the_name_of_a_token_is_told():
    access = AccessPolicy(tokens=read_tokens([f"ann:{TOKEN}", f"bob:{TOKEN[::-1]}"]))

    assert access.authenticate({**OURS, "authorization": f"Bearer {TOKEN}"}, LOCAL) == "ann"
    assert access.authenticate({**OURS, "authorization": f"bearer {TOKEN[::-1]}"}, LOCAL) == "bob"


def test_certificate_and_token_are_both_required():
    access = AccessPolicy(tokens=read_tokens([f"ann:{TOKEN}"]), certificates=True)
    shown = TcpPeer("127.0.0.1", "127.0.0.1", has_certificate=True, secure=True)
    token = {**OURS, "authorization": f"Bearer {TOKEN}"}

    assert access.authenticate(token, shown) == "ann"
    for headers, peer in [(token, LOCAL), (OURS, shown)]:
        refusal = access.authenticate(headers, peer)
        assert isinstance(refusal, Refusal)
        assert refusal.status == 401


def test_tokens_are_read_by_line():
    tokens = read_tokens(["# who may come in", "", f"  ann : {TOKEN} ", TOKEN[::-1]])

    alone = hashlib.sha256(TOKEN[::-1].encode()).hexdigest()
    assert sorted(tokens.values()) == [alone[:12], "ann"]


@pytest.mark.parametrize(
    ("line", "name"), [("ann:sha256:%s", "ann"), ("sha256:%s", None), (" ann : sha256:%s ", "ann")]
)
def test_a_digest_may_replace_its_token(line, name):
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens = read_tokens([line % digest])

    assert tokens == {bytes.fromhex(digest): name or digest[:12]}


@pytest.mark.parametrize("line", ["short", "ann:short", "a token with spaces in it"])
def test_a_weak_token_is_refused_and_not_shown(line):
    with pytest.raises(ValueError, match="line 1: a token is 16 characters at least") as caught:
        read_tokens([line])
    assert line not in str(caught.value)


def test_repeated_headers_are_joined():
    assert join_headers([(b"Host", b"a"), (b"host", b"a"), (b"X", b"1"), (b"x", b"2 ")]) == {
        "host": "a",
        "x": "1, 2",
    }


@pytest.mark.parametrize(
    ("host", "address"),
    [("a.b:1", "a.b"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", ""), ("A.B.", "a.b")],
)
def test_the_address_of_a_host_has_no_port(host, address):
    assert host_name_of(host) == address
