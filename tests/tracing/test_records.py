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
