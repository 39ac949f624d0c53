"""What `v1_v2` keeps of an agent of version 2 is bounded."""

from __future__ import annotations

from proxies.v1_v2.kept_content import KeptContent
from proxies.v1_v2.messages import MessagesToV1
from proxies.v1_v2.to_v1 import SessionToV1, V1Features
from proxies.v1_v2.to_v2 import SessionToV2

MIB = 2**20


def item(text):
    return {"type": "content", "content": {"type": "text", "text": text}}


def chunk(call, text):
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": call, "content": item(text)}


def texts(update):
    return [each["content"]["text"] for each in update["content"]]


def test_chunks_are_appended_to_the_newest_items_of_a_call():
    kept = KeptContent()
    session = SessionToV1(V1Features(), kept)

    for number in range(100):
        (update,) = session.convert(chunk("c", str(number).ljust(100_000, ".")))

    shown = [int(text.rstrip(".")) for text in texts(update)]
    assert shown == list(range(100 - len(shown), 100))
    assert 9 <= len(shown) <= 11
    assert MIB - 200_000 < kept.size <= MIB


def test_the_content_of_all_calls_and_sessions_is_bounded_and_the_oldest_is_forgotten():
    kept = KeptContent()
    sessions = [SessionToV1(V1Features(), kept) for _ in range(10)]

    for session in sessions:
        for number in range(10):
            session.convert(chunk(f"c{number}", "x" * 500_000))

    assert 7 * MIB < kept.size <= 8 * MIB
    assert kept.calls(sessions[0].tool_calls) == []
    (update,) = sessions[-1].convert(chunk("c9", "y"))
    assert len(texts(update)) == 2


def test_small_items_without_end_are_bounded():
    kept = KeptContent()
    session = SessionToV1(V1Features(), kept)

    for number in range(25_000):
        session.convert({**chunk(f"c{number}", ""), "toolCallId": f"{number}"})

    assert kept.size <= 8 * MIB
    assert len(kept.calls(session.tool_calls)) < 25_000


def test_an_item_that_is_too_large_is_shown_and_not_kept():
    kept = KeptContent()
    session = SessionToV1(V1Features(), kept)
    large = "x" * 2 * MIB

    (whole,) = session.convert(
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [item(large)]}
    )
    (appended,) = session.convert(chunk("c", large))
    (later,) = session.convert(chunk("c", "end"))

    assert texts(whole) == texts(appended) == [large]
    assert texts(later) == ["end"]
    assert kept.size < 1000


def test_nothing_is_kept_of_a_call_or_turn_that_has_ended():
    kept = KeptContent()
    session = SessionToV1(V1Features(), kept)
    session.convert(chunk("c", "one"))
    session.convert(chunk("d", "one"))
    session.convert({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"})
    assert kept.calls(session.tool_calls) == ["d"]

    session.tool_calls.forget()

    assert kept.size == 0


def test_long_ids_and_titles_take_little_memory():
    told, back, messages = SessionToV2(), SessionToV1(V1Features()), MessagesToV1()
    long = "x" * MIB

    told.convert({"sessionUpdate": "tool_call", "toolCallId": long, "title": long})
    (call,) = back.convert({"sessionUpdate": "tool_call_update", "toolCallId": long})
    (again,) = back.convert({"sessionUpdate": "tool_call_update", "toolCallId": long})
    messages.chunk(
        {"sessionUpdate": "agent_message_chunk", "messageId": long, "content": {"type": "x"}}
    )
    asked = told.permission({"toolCall": {"toolCallId": long}})

    remembered = [*told._titles.items(), *back.tool_calls._known, *messages._sent]
    assert (
        max(
            len(text) for each in remembered for text in ([each] if isinstance(each, str) else each)
        )
        <= 1000
    )
    assert (call["toolCallId"], again["sessionUpdate"]) == (long, "tool_call_update")
    assert asked["title"] == "x" * 1000
