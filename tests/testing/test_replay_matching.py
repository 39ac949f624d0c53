from conductor.testing.player import ExpectedMessages, Match, live_key
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


KEY = live_key("request", "session/prompt", None, None)


def test_an_equal_message_is_taken_before_the_next_one():
    messages = expected(prompt("one"), prompt("two"), prompt("three"))

    assert messages.take(KEY, prompt("two")) == Match(1, True)
    assert messages.take(KEY, prompt("other")) == Match(0, False)
    assert messages.take(KEY, prompt("two")) == Match(2, False)
    assert messages.take(KEY, prompt("two")) is None
    assert messages.count(KEY) == 3


def test_of_unequal_messages_one_of_the_same_session_is_taken():
    messages = expected(prompt("one", "a"), prompt("two", "b"))

    assert messages.take(KEY, prompt("other", "b")) == Match(1, False)


def test_ids_of_the_live_conversation_and_ignored_members_are_no_difference():
    values = ReplayValues()
    values.set_id("s", "live")
    messages = expected(prompt("one") | {"x": 1}, values=values, ignored=["x"])

    assert messages.take(KEY, prompt("one", "live") | {"x": 2}) == Match(0, True)


def test_another_method_or_kind_of_update_is_another_message():
    update = {"sessionId": "s", "update": {"sessionUpdate": "plan"}}
    messages = expected(update, method="session/update")

    for key in (
        live_key("notification", "session/update", update, None),
        live_key("request", "session/update", None, None),
        live_key("request", "session/update", update, "server"),
    ):
        assert messages.take(key, update) is None
    assert messages.take(live_key("request", "session/update", update, None), update) == Match(
        0, True
    )


def test_a_message_that_was_found_by_its_id_is_not_expected_any_more():
    messages = expected(prompt("one"), prompt("two"))
    messages.arrived(0)
    messages.arrived(0)

    assert messages.take(KEY, prompt("one")) == Match(1, False)
