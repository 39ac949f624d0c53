from __future__ import annotations

import tracemalloc

import pytest

from conductor.errors import RequestError
from conductor.server.session_principals import SessionPrincipals


def test_a_session_id_in_other_capitals_or_another_composition_is_the_same():
    """Agents that store sessions in files read it on file systems that ignore the difference."""
    owners = SessionPrincipals()
    owners.claim("1a-\xc9", "ann")

    assert not owners.allow("1A-E\u0301", "bob")
    assert owners.allow("1A-e\u0301", "ann")

    owners.claim("\N{MODIFIER LETTER CAPITAL A}", "ann")  # normalized, it is a capital
    assert not owners.allow("a", "bob")


def test_one_session_id_may_have_several_principals():
    owners = SessionPrincipals()
    for principal in ("ann", "bob"):
        owners.claim("1", principal)
    assert [owners.allow("1", who) for who in ("ann", "bob", "eve")] == [True, True, False]

    owners.release("1", "bob")
    owners.release("1", "eve")
    assert [owners.allow("1", who) for who in ("ann", "bob")] == [True, False]

    owners.release("1", "ann")
    assert owners.allow("1", "eve")


def test_a_principal_at_its_quota_gets_no_more_sessions_and_displaces_none():
    owners = SessionPrincipals(most_each=2)
    for session in ("1", "2"):
        assert owners.claim(session, "ann")
    assert not owners.claim("1", "ann")
    with pytest.raises(RequestError, match="Too many sessions"):
        owners.claim("3", "ann")
    with pytest.raises(RequestError, match="Too many sessions"), owners.reserve("ann"):
        raise AssertionError
    assert [owners.allow(session, "eve") for session in ("1", "2")] == [False, False]
    assert owners.claim("3", "bob")

    owners.release("1", "ann")
    with owners.reserve("ann"), pytest.raises(RequestError):
        owners.claim("4", "ann")
    assert owners.claim("4", "ann")


def test_a_long_session_id_takes_no_more_room_than_a_short_one():
    owners = SessionPrincipals()
    tracemalloc.start()
    for number in range(100):
        owners.claim("x" * 100_000 + str(number), "ann")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size < 100_000


def test_a_principal_without_sessions_takes_no_room():
    owners = SessionPrincipals()
    owners.claim("1", "ann")
    owners.release("1", "ann")
    with owners.reserve("bob"):
        pass

    assert not owners._counts
    assert owners.records() == []


def test_a_session_that_an_agent_only_names_belongs_to_the_first():
    owners = SessionPrincipals()

    assert owners.claim_child("child", "ann")
    assert not owners.claim_child("child", "bob")
    assert owners.has("child", "ann")
    assert not owners.allow("child", "bob")


def test_a_named_session_that_an_agent_gives_to_another_principal_is_theirs():
    owners = SessionPrincipals(most_each=1)
    owners.claim_child("next", "bob")

    assert owners.assign("next", "ann")
    assert not owners.allow("next", "bob")
    assert owners.claim_child("other", "bob"), "its place in the quota is free"


def test_a_session_that_was_assigned_is_kept():
    owners = SessionPrincipals()
    owners.claim_child("1", "bob")
    assert not owners.assign("1", "bob")

    assert owners.assign("1", "ann")  # agents may number sessions
    assert owners.has("1", "bob")
    assert owners.has("1", "ann")


def test_beyond_the_quota_a_named_session_is_not_recorded():
    owners = SessionPrincipals(most_each=1)
    owners.claim("1", "ann")

    with pytest.raises(RequestError, match="Too many sessions"):
        owners.claim_child("2", "ann")
    owners.claim("2", "bob")
    owners.assign("2", "cid")
    assert owners.has("2", "bob")


def test_a_claim_that_is_withdrawn_leaves_a_session_that_was_assigned_since():
    owners = SessionPrincipals()
    owners.claim_child("1", "ann")
    owners.claim_child("2", "ann")
    owners.assign("1", "ann")

    for session in ("1", "2"):
        owners.withdraw_child(session, "ann")
    assert owners.has("1", "ann")
    assert not owners.has("2", "ann")
