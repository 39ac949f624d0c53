from conductor.testing.replay_values import ReplayValues


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
