import pytest

from conductor.tracing.direction import direction
from conductor.tracing.records import NotificationRecord


@pytest.mark.parametrize(
    ("sender", "receiver", "expected"),
    [
        ("Client", "Proxy(0)", "agent"),
        ("Proxy(2)", "Proxy(10)", "agent"),
        ("Proxy(10)", "Agent", "agent"),
        ("Agent", "Proxy(0)", "client"),
        ("Proxy(0)", "Client", "client"),
        ("Proxy(0)", "mcp-bridge", "agent"),  # inserted later, it has no label
        ("mcp-bridge", "Agent", "agent"),
        ("mcp-bridge", "Proxy(9)", "client"),
        ("conductor", "Client", "client"),
        ("conductor", "Proxy(0)", "agent"),
        ("Proxy(" + "9" * 5000 + ")", "Agent", "agent"),
    ],
)
def test_direction_follows_the_order_of_the_chain(sender, receiver, expected):
    message = NotificationRecord(
        ts=0.0, from_=sender, to=receiver, protocol="acp", method="m", params=None
    )

    assert direction(message) == expected
