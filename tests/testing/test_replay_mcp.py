from conductor.testing.replay_mcp import McpEnvelopes, unwrapped
from conductor.testing.replay_values import ReplayValues
from conductor.tracing.conversation import RecordedMessage


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
