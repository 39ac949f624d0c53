from conductor.testing.player import BEGINNING, tracks
from conductor.tracing.conversation import RecordedMessage

OTHER = {"client": "agent", "agent": "client"}


def messages(*steps):
    """Steps as `client request 1 METHOD SESSION` and `agent response 1`."""
    made = []
    for step in steps:
        sender, kind, number, *rest = step.split()
        method, session = [*rest, "", ""][:2]
        payload = {"sessionId": session} if session else {}
        asker = OTHER[sender] if kind == "response" else sender
        made.append(RecordedMessage(kind, sender, (asker, number), method, payload))
    return made


def test_a_client_has_one_track():
    steps = ["client request 1 a", "agent response 1", "client notification - b"]

    assert tracks(messages(*steps), "client") == {BEGINNING: [0, 1, 2]}


def test_an_agent_has_a_track_for_each_request():
    steps = [
        "agent notification - hello",
        "client request 1 initialize",
        "agent response 1",
        "client request 2 session/new",
        "agent response 2",
        "agent notification - session/update",
    ]

    assert tracks(messages(*steps), "agent") == {BEGINNING: [0], 1: [2], 3: [4, 5]}


def test_turns_of_several_sessions_are_independent():
    steps = [
        "client request 1 session/prompt one",
        "client request 2 session/prompt two",
        "agent notification - session/update one",
        "agent request 1 fs/read_text_file two",
        "agent response 1",
        "client response 1",
        "agent response 2",
        "agent notification - session/update one",
        "client notification - session/cancel two",
    ]

    assert tracks(messages(*steps), "agent") == {
        BEGINNING: [],
        0: [2, 4, 7],
        1: [3, 5, 6, 8],
    }


def test_what_comes_during_a_turn_belongs_to_the_prompt_and_not_to_another_request():
    steps = [
        "client request 1 session/prompt one",
        "client request 2 session/set_mode one",
        "agent notification - session/update one",
        "agent request 1 mcp/connect",
        "agent response 2",
        "agent response 1",
    ]

    assert tracks(messages(*steps), "agent") == {BEGINNING: [], 0: [2, 5], 1: [3, 4]}
