"""TypeScript clients and agents of protocol versions 1 and 2, crossed: `v1_v2` is inserted."""

import pytest


@pytest.fixture
def run(conductor, component, tmp_path):
    """The command of a conductor that runs the agent behind these entries of a chain file."""

    def run(agent, *proxies):
        lines = ["version: 1", *(["proxies:"] if proxies else []), *proxies]
        file = tmp_path / "chain.yaml"
        file.write_text("\n".join([*lines, f"agent: {{run: {list(agent)!r}}}", ""]))
        return conductor("run", [str(file)])

    return run


PROXY = "  - use: log_messages"
ENDED = {"end": "end_turn"}
DONE = {
    "logins": ["key"],
    "loggedIn": {**ENDED, "said": "key"},
    "loggedOut": {**ENDED, "said": "null"},
    "mode": {**ENDED, "said": "code"},
    "unknownMode": -32602,
    "refused": {**ENDED, "said": "no", "call": {"title": "Edit", "status": "pending"}},
    "cancelledQuestion": {
        "end": "cancelled",
        "said": "cancelled",
        "call": {"title": "Edit", "status": "pending"},
    },
    "besides": {**ENDED, "said": "ask"},
    "cancelled": {"end": "cancelled", "said": "waits"},
    "error": {
        "end": {"code": -32001, "message": "no tokens left", "data": {"limit": 5}},
        "said": "",
    },
    "tool": {
        **ENDED,
        "said": "",
        "call": {"title": "Write", "status": "completed", "content": ["done", "-old\n+new"]},
    },
    "plan": {**ENDED, "said": "", "plan": ["greet completed"]},
    "form": {**ENDED, "said": "accept red"},
    "cancelledRequest": -32800,
    "unknownMethod": -32601,
    "replayed": ["user: mode", "agent: ask"],
    "resumed": [],
    "listed": ["session-1", "session-2"],
    "left": 1,
}
"""What each client says of each agent: logins, modes, turns, sessions."""
SAME_OR_CROSSED = [
    (1, 1),
    (2, 2),
    (1, 2, PROXY, "  - {use: v1_v2, with: {agent_version: 2}}", PROXY),
    (2, 1, PROXY, PROXY),
]


@pytest.mark.parametrize("case", SAME_OR_CROSSED, ids=lambda case: "-".join(map(str, case[:2])))
def test_what_the_versions_have_in_other_forms_is_the_same(converse, run, peer, case):
    client, agent, *proxies = case
    chain = run(peer("ts_versions_agent", str(agent)), *proxies)
    summary = converse(peer("ts_versions_client", str(client)), chain)

    done = summary["done"]
    assert (done.pop("version"), summary["exit"]) == (client, 0)
    died, restarted = done.pop("died"), done.pop("restarted")
    assert done == DONE
    assert "exited with status 3. The prompt was cut off" in died["end"]["message"]
    assert restarted["end"] == "end_turn"
    assert restarted["said"].endswith("code")
