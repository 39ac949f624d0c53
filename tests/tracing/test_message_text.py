import pytest

from conductor.tracing.message_text import message_text

TOOL = {"toolCallId": "t1", "title": "Read", "kind": "read", "status": "pending"}


@pytest.mark.parametrize(
    ("method", "payload", "text"),
    [
        ("initialize", {"protocolVersion": 1}, ""),
        ("session/prompt", {"prompt": [{"type": "text", "text": "hi"}]}, '"hi"'),
        ("session/update", {"update": {"sessionUpdate": "tool_call", **TOOL}},
         "tool_call t1 Read read pending"),
        ("session/request_permission", {"toolCall": TOOL, "options": [{"optionId": "yes"}]},
         '"Read" (yes)'),
        ("tools/call", {"name": "add", "arguments": {"a": 1}}, 'tool add {"a": 1}'),
        ("session/cancel", {"sessionId": "s"}, "{}"),
        # what a hostile peer may send instead
        ("session/prompt", {"prompt": [None, 3]}, "null 3"),
        ("session/request_permission", {"subject": "x", "options": ["y"]}, "null (None)"),
        ("session/update", {"update": {"sessionUpdate": "x", "availableCommands": [1]}}, "x /None"),
        ("session/update", {"update": []}, '{"update": []}'),
        ("other", [1], "[1]"),
    ],
)  # fmt: skip
def test_the_essence_of_a_message_is_shown(method, payload, text):
    assert message_text("request", method, payload) == text


def test_deep_nesting_is_not_shown():
    value = []
    for _ in range(100_000):
        value = [value]

    assert message_text("request", "m", {"x": value}) == "(nested too deeply to be shown)"
