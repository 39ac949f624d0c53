"""The main job: third-party clients and agents talk through the conductor as directly.

Clients, agents and one of the proxies are written on the official Python and TypeScript SDKs; the
other proxies are tests/support/components/pass_proxy.py. What a client saw of the agent is
compared with what it saw when it started the agent itself.
"""

import pytest

CROSSED = [("py_client", "ts_agent"), ("ts_client", "py_agent")]
"""Each client and each agent: the messages of one do not depend on the other."""


@pytest.fixture
def chain(conductor, component, peer):
    """An agent behind two proxies, `a` next to the client; by the kinds of the proxies."""

    def proxy(kind, name):
        if kind == "ts":
            return peer("ts_proxy", "--tag", name)
        dialect, _, wrong = kind.partition(" ")
        flags = ["--dialect", dialect, "--wrong", wrong or "error", "--tag", "--name", name]
        return component("pass_proxy", *flags)

    def chain(first, second, agent):
        return conductor("agent", proxy(first, "a"), proxy(second, "b"), agent)

    return chain


@pytest.mark.parametrize(("client", "agent"), CROSSED)
def test_the_peers_show_every_event_that_the_comparison_relies_on(alone, peer, client, agent):
    summary = alone(peer(client), peer(agent))

    kinds = [event[0] for event in summary["events"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "update": 15,
        "permission": 1,
        "read": 1,
        "asked": 1,
        "answer": 6,
        "result": 1,
        "error": 1,
    }
    answers = [event[1]["stopReason"] for event in summary["events"] if event[0] == "answer"]
    assert answers == ["end_turn"] * 5 + ["cancelled"]
    assert summary["exit"] == 0


@pytest.mark.parametrize(("client", "agent"), CROSSED)
def test_an_agent_behind_the_conductor_behaves_as_the_agent_alone(
    alone, check_same, conductor, converse, peer, client, agent
):
    summary = converse(peer(client), conductor("agent", peer(agent)))

    check_same(summary, alone(peer(client), peer(agent)))


@pytest.mark.parametrize(
    ("client", "proxies", "agent"),
    [
        ("py_client", ("proxy", "_proxy"), "ts_agent"),
        ("ts_client", ("_proxy echo", "ts"), "py_agent"),
        ("ts_client", ("ts", "_proxy close"), "py_agent"),
    ],
    ids=str,
)
def test_two_proxies_change_only_the_texts_that_they_tag(
    alone, chain, check_same, converse, peer, tagged, client, agent, proxies
):
    summary = converse(peer(client), chain(*proxies, peer(agent)))

    mcp = summary["initialize"]["agentCapabilities"]["mcpCapabilities"]
    assert mcp == {"http": True, "sse": False, "acp": True}  # the last by the conductor
    check_same(summary, tagged(alone(peer(client), peer(agent)), "a", "b"))


def test_a_cancelled_request_is_cancelled_at_every_hop(
    alone, chain, check_same, converse, peer, tagged
):
    """The TypeScript proxy speaks the dialect `proxy`."""
    client, agent = peer("ts_client", "--request-cancel"), peer("ts_agent")

    summary = converse(client, chain("_proxy", "ts", agent))

    check_same(summary, tagged(alone(client, agent), "a", "b"))


def test_protocol_version_2_passes_through(alone, chain, check_same, converse, peer, tagged):
    client, agent = peer("ts_v2_client"), peer("ts_v2_agent")

    summary = converse(client, chain("ts", "_proxy", agent))

    assert summary["initialize"]["protocolVersion"] == 2
    check_same(summary, tagged(alone(client, agent), "a", "b"))
