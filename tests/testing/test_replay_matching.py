from conductor.testing.player import ExpectedMessages
from conductor.testing.replay_values import ReplayValues
from conductor.tracing.conversation import RecordedMessage


def prompt(text, session="s"):
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


def expected(*payloads, method="session/prompt", values=None, ignored=()):
    messages = {
        index: RecordedMessage("request", "client", index, method, payload)
        for index, payload in enumerate(payloads)
    }
    return ExpectedMessages(messages, values or ReplayValues(), ignored)


def live(payload, kind="request", method="session/prompt", protocol="acp"):
    return RecordedMessage(kind, "client", None, method, payload, protocol=protocol)


def test_an_equal_message_is_taken_before_the_next_one():
    messages = expected(prompt("one"), prompt("two"), prompt("three"))

    assert messages.take(live(prompt("two"))) == (1, True)
    assert messages.take(live(prompt("other"))) == (0, False)
    assert messages.take(live(prompt("two"))) == (2, False)
    assert messages.take(live(prompt("two"))) is None
    assert messages.count(live(None)) == 3


def test_of_unequal_messages_one_of_the_same_session_is_taken():
    messages = expected(prompt("one", "a"), prompt("two", "b"))

    assert messages.take(live(prompt("other", "b"))) == (1, False)


def test_ids_of_the_live_conversation_and_ignored_members_are_no_difference():
    values = ReplayValues()
    values.set_id("s", "live")
    messages = expected(prompt("one") | {"x": 1}, values=values, ignored=["x"])

    assert messages.take(live(prompt("one", "live") | {"x": 2})) == (0, True)


def test_another_method_or_kind_of_update_is_another_message():
    update = {"sessionId": "s", "update": {"sessionUpdate": "plan"}}
    messages = expected(update, method="session/update")

    for other in (
        live(update, "notification", "session/update"),
        live(None, "request", "session/update"),
        live(update, "request", "session/update", "mcp"),
    ):
        assert messages.take(other) is None
    assert messages.take(live(update, "request", "session/update")) == (0, True)


def test_a_message_that_was_found_by_its_id_is_not_expected_any_more():
    messages = expected(prompt("one"), prompt("two"))
    messages.arrived(0)
    messages.arrived(0)

    assert messages.take(live(prompt("one"))) == (1, False)
