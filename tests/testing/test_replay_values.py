from conductor.testing.replay_values import McpEnvelopes, ReplayValues, unwrapped
from conductor.tracing.conversation import RecordedMessage


def test_ids_of_the_peer_are_learned_by_their_place():
    values = ReplayValues()
    recorded = {"sessionId": "s", "update": {"toolCallId": "t", "title": "a"}, "list": [{"x": 1}]}
    live = {"sessionId": "S", "update": {"toolCallId": "T", "title": "b"}, "list": []}
    values.learn(recorded, live)

    sent = {"sessionId": "s", "toolCallId": "t", "s": "text with s", "title": "a"}
    assert values.live(sent) == {
        "sessionId": "S",
        "toolCallId": "T",
        "S": "text with s",
        "title": "a",
    }
    assert values.recorded(values.live(sent)) == sent


def test_options_of_a_permission_request_are_paired_by_kind():
    values = ReplayValues()

    def options(*pairs):
        return {"options": [{"optionId": id, "kind": kind} for id, kind in pairs]}

    values.learn(
        options(("yes", "allow_once"), ("no", "reject_once")),
        options(("always", "allow_always"), ("cancel", "reject_once"), ("once", "allow_once")),
    )

    assert values.live(["yes", "no", "maybe"]) == ["once", "cancel", "maybe"]


def test_the_working_directory_is_replaced_in_texts_but_not_in_longer_names():
    values = ReplayValues()
    values.set_directory("/project", r"C:\1")

    text = [
        "/project",
        "see /project/a",
        "file:///project",
        "/projects",
        "/project-2",
        "/project.d",
    ]
    assert values.live(text) == [r"C:\1", r"see C:\1/a", r"file://C:\1", *text[3:]]
    assert values.recorded(values.live(text)) == text


def test_the_root_is_no_directory_to_replace():
    values = ReplayValues()
    values.set_directory("/", "/home")

    assert values.live("/etc") == "/etc"


def test_a_value_that_is_nested_too_deeply_stays_as_it_is():
    values = ReplayValues()
    values.learn({"sessionId": "s"}, {"sessionId": "S"})
    deep = ["s"]
    for _ in range(2000):
        deep = [deep]

    assert values.live(deep) is deep
    assert values.recorded(deep) is deep


def mcp(kind, method, payload, server, n=1):
    return RecordedMessage(
        kind, "agent", n, method, payload, n=n, mcp_server=server, protocol="mcp"
    )


CONNECTED = RecordedMessage("response", "client", 1, "mcp/connect", {"connectionId": "c"})


def test_messages_of_a_connection_have_its_live_id():
    values = ReplayValues()
    values.set_id("c", "live")
    envelopes = McpEnvelopes([CONNECTED])

    assert envelopes.wrapped(mcp("request", "tools/list", None, "c"), values) == (
        "mcp/message",
        {"connectionId": "live", "method": "tools/list"},
    )


def test_messages_of_the_stateless_binding_have_the_id_of_their_request():
    values = ReplayValues()
    envelopes = McpEnvelopes([CONNECTED])
    call = mcp("request", "tools/call", {"name": "x"}, "s", n=7)
    progress = mcp("notification", "notifications/progress", {}, "s", n=8)
    other = {"serverId": "s", "requestId": "replay-7"}

    assert envelopes.wrapped(call, values) == (
        "mcp/message",
        {**other, "method": "tools/call", "params": {"name": "x"}},
    )
    assert envelopes.wrapped(progress, values) == (
        "mcp/message",
        {**other, "method": "notifications/progress", "params": {}},
    )


def test_an_envelope_is_taken_off():
    inner = {"method": "tools/call", "params": {"name": "x"}}
    content = RecordedMessage(
        "request", "agent", 1, "tools/call", {"name": "x"}, n=1, mcp_server="s", protocol="mcp"
    )
    for name in ("serverId", "connectionId", "acpId"):
        assert unwrapped("request", "agent", "mcp/message", {name: "s", **inner}, 1) == content
    plain = unwrapped("request", "agent", "session/prompt", inner, 1)
    assert plain == RecordedMessage("request", "agent", 1, "session/prompt", inner)
