import msgspec

from conductor.tracing.records import NotificationRecord, Record


def test_the_keys_of_the_rust_conductor_are_always_there():
    record = NotificationRecord(
        ts=1.5, protocol="acp", from_="Agent", to="Client", method="session/update", params=None
    )

    encoded = msgspec.json.decode(msgspec.json.encode(record))

    assert encoded == {
        "type": "notification",
        "ts": 1.5,
        "protocol": "acp",
        "from": "Agent",
        "to": "Client",
        "method": "session/update",
        "params": None,
    }
    assert msgspec.convert(encoded, Record) == record


def test_the_kind_of_an_update_is_known_also_of_one_that_is_cut():
    common = {"ts": 1.5, "protocol": "acp", "from_": "Agent", "to": "Client", "params": None}
    head = '{"sessionId":"\\"sessionUpdate\\":\\"plan\\"","update":{"sessionUpdate":"tool_call","t'

    cut = NotificationRecord(**common, method="session/update", head=head)
    other = NotificationRecord(**common, method="_mine", head=head)

    assert (cut.update_kind, other.update_kind) == ("tool_call", None)
