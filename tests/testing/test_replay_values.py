from conductor.testing.player import unwrapped
from conductor.testing.replay_values import McpEnvelopes, ReplayValues
from conductor.testing.transcript import Heard
from conductor.tracing.conversation import at_end


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


def mcp(kind, method, params, server="serverId", id="s", n=1):
    message = {server: id, "method": method, "params": params}
    return unwrapped(at_end("agent", "client"), Heard(kind, "mcp/message", params=message), n)


ANSWER = Heard("answer", "mcp/connect", result={"connectionId": "c"})
CONNECTED = unwrapped(at_end("agent", "agent"), ANSWER, 1)


def test_messages_of_a_connection_have_its_live_id():
    values = ReplayValues()
    values.set_id("c", "live")
    envelopes = McpEnvelopes([CONNECTED])

    assert envelopes.wrapped(mcp("request", "tools/list", None, id="c"), values) == (
        "mcp/message",
        {"connectionId": "live", "method": "tools/list"},
    )


def test_messages_of_the_stateless_binding_have_the_id_of_their_request():
    values = ReplayValues()
    envelopes = McpEnvelopes([CONNECTED])
    call = mcp("request", "tools/call", {"name": "x"}, n=7)
    progress = mcp("notification", "notifications/progress", {}, n=8)
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
    for name in ("serverId", "connectionId", "acpId"):
        found = mcp("request", "tools/call", {"name": "x"}, name)
        assert (found.method, found.params, found.protocol) == ("tools/call", {"name": "x"}, "mcp")
        assert found.mcp_server == "s"
