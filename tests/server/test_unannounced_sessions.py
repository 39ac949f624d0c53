from __future__ import annotations

from support.raw_json import dumps

from conductor import log
from conductor.server.session_principals import SessionPrincipals
from conductor.server.unannounced_sessions import UnannouncedSessions


def update(session, kind="agent_message_chunk"):
    return dumps({"sessionId": session, "update": {"sessionUpdate": kind}})


def test_the_first_update_of_a_session_names_it_and_later_ones_are_not_looked_at():
    owners = SessionPrincipals()
    sessions = UnannouncedSessions(owners, "ann")

    assert sessions.named(update("child")) == "child"
    owners.claim("child", "ann")
    assert sessions.concerns(update("child"))
    assert sessions.named(update("child")) is None
    assert not sessions.concerns(update("child"))
    assert sessions.concerns(update("child", "subagent_update"))


def test_an_update_records_nothing_of_a_session_of_another_principal():
    owners = SessionPrincipals()
    owners.claim("child", "bob")

    assert UnannouncedSessions(owners, "ann").named(update("child")) is None


def test_while_a_session_is_set_up_updates_may_be_of_it():
    sessions = UnannouncedSessions(SessionPrincipals(), "ann")

    with sessions.wait_for_id():
        with sessions.wait_for_id():
            pass
        assert sessions.is_waiting_for_id
    assert not sessions.is_waiting_for_id


def test_late_updates_of_a_deleted_session_do_not_record_it_again():
    owners = SessionPrincipals()
    sessions = UnannouncedSessions(owners, "ann")
    owners.claim("gone", "ann")
    sessions.named(update("gone"))
    owners.release("gone", "ann")
    sessions.skip("gone")

    assert sessions.concerns(update("gone"))
    assert sessions.named(update("gone")) is None


def test_few_ids_are_kept_and_no_long_ones():
    owners = SessionPrincipals()
    sessions = UnannouncedSessions(owners, "ann")
    for id in [*map(str, range(250)), "x" * 1000]:
        owners.claim(id, "ann")
        sessions.named(update(id))

    assert len(sessions._known) <= 100
    assert sessions.concerns(update("x" * 1000))


def test_what_names_no_session_is_passed():
    assert UnannouncedSessions(SessionPrincipals(), "ann").named(b"[]") is None


def test_of_many_deleted_sessions_the_oldest_is_forgotten():
    sessions = UnannouncedSessions(SessionPrincipals(), "ann")
    for id in range(1001):
        sessions.skip(str(id))

    assert sessions.named(update("0")) == "0"
    assert sessions.named(update("1")) is None


def test_only_the_first_refused_session_is_logged(monkeypatch):
    found = []
    monkeypatch.setattr(log, "_level", log.LEVELS["warning"])
    monkeypatch.setattr(log, "_emit", lambda _, event, fields: found.append(fields["session"]))
    sessions = UnannouncedSessions(SessionPrincipals(), "ann")

    sessions.log_refusal("first", "full")
    sessions.log_refusal("second", "full")
    assert found == ["first"]
