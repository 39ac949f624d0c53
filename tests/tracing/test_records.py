import pytest

from conductor.tracing.records import NotificationRecord


def test_the_kind_of_an_update_is_known_also_of_one_that_is_cut():
    common = {"ts": 1.5, "protocol": "acp", "from_": "Agent", "to": "Client", "params": None}
    head = '{"sessionId":"\\"sessionUpdate\\":\\"plan\\"","update":{"sessionUpdate":"tool_call","t'

    cut = NotificationRecord(**common, method="session/update", head=head)
    other = NotificationRecord(**common, method="_mine", head=head)

    assert (cut.update_kind, other.update_kind) == ("tool_call", None)


@pytest.mark.parametrize(
    ("sender", "receiver", "expected"),
    [
        ("Client", "Proxy(0)", "agent"),
        ("Proxy(2)", "Proxy(10)", "agent"),
        ("Agent", "Proxy(0)", "client"),
        ("Proxy(0)", "mcp-bridge", "agent"),  # inserted later, it has no label
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

    assert message.toward == expected
