"""The corpus of `bypasses.yaml`: no rule allows what it does not cover or misses what it denies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from conductor.proxy.tool_names import tool_table
from proxies.permissions.rules import Rule, decide
from proxies.shared.tool_calls.call import Call

GROUPS = yaml.load(
    Path(__file__).with_name("bypasses.yaml").read_bytes(),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),
)


def make_places(directory):
    """Make the files of the head of `bypasses.yaml`; their directories by name."""
    places = {each: directory / each for each in ("cwd", "home", "outside")}
    cwd, home, outside = places.values()
    files = (cwd / ".env", cwd / "src/a.py", outside / "shadow", outside / "deep/x")
    for file in (*files, home / ".ssh/id_rsa"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    (home / "link").symlink_to(".ssh")
    (cwd / "src" / "link").symlink_to(outside)
    (cwd / "src" / "up").symlink_to("/")
    (cwd / "link").symlink_to(outside / "deep")
    (cwd / "a/b").mkdir(parents=True)
    (cwd / "a/b/out").symlink_to(outside)
    (cwd / "keys").symlink_to(home / ".ssh")
    return places


def filled(value, places):
    """A call with the directories in place of their names in braces."""
    match value:
        case str():
            for name, place in places.items():
                value = value.replace(f"{{{name}}}", str(place))
            return value
        case list():
            return [filled(each, places) for each in value]
        case dict():
            return {filled(k, places): filled(v, places) for k, v in value.items()}
    return value


def cases(expected):
    for group in GROUPS:
        for members in group.get(expected, ()):
            text = json.dumps(members, ensure_ascii=True, default=str)
            yield pytest.param(group, members, id=f"{group['what']}: {text}"[:150])


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The directories of the head of `bypasses.yaml`, which no test changes."""
    places = make_places(tmp_path_factory.mktemp("places"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(places["home"]))
        patch.delenv("UNKNOWN", raising=False)
        yield places


def action(group, members, places, *later):
    """What is decided about the call: the rule's action, or None if it is not about it. `later` are
    further rules, behind that of the group."""
    agent = group.get("agent", "claude-agent-acp")
    call = Call.of(
        filled({**group["call"], **members}, places),
        cwd=str(places["cwd"]),
        session="s",
        agent=agent,
        table=tool_table(agent),
        declared=["docs"],
    )
    decision = decide([Rule(**group["rule"]), *later], "ask", call)
    return decision.action if decision.rule else None


@pytest.mark.parametrize(("group", "members"), [*cases("about")])
def test_a_rule_decides_the_calls_that_it_covers(group, members, places):
    assert action(group, members, places) == group["rule"]["action"]


@pytest.mark.parametrize(("group", "members"), [*cases("asks")])
def test_a_rule_that_denies_asks_about_a_command_that_hides_what_it_is_about(
    group, members, places
):
    assert action(group, members, places) == "ask"
    assert action(group, members, places, Rule("allow_once", kind=["execute"])) == "ask"


@pytest.mark.parametrize(("group", "members"), [*cases("not_about")])
def test_a_rule_does_not_decide_other_calls(group, members, places):
    assert action(group, members, places) is None


@pytest.mark.parametrize(
    "given",
    [
        {"path": "/a" * 500_000},
        {"path": "../" * 300_000},
        {"path": "*" * 300_000 + ".."},
        {"path": "," * 300_000},
        {"paths": [f"p{n}" for n in range(20_000)]},
        {"command": " ".join(f"{n}/x" for n in range(100_000))},
        {"command": "x" + "{a,b,{" * 1000},
        {"command": " ".join(["{%s}" % ("," * 500)] * 200)},
        {"command": "git " + "'\"" * 100_000},
        {"command": "cd a;" * 13_000},
        {"command": "git log|" * 8000},
        {"command": "<" * 60_000},
        {"command": ")" * 60_000},
        {"options": '{"file_path": ".env", "x": "' + "x" * 2_000_000 + '"}'},
        {"options": "[" * 2_000_000},
        {"path": "src", "pattern": "{a,b}" * 200_000},
    ],
    ids=lambda given: f"{next(iter(given))} {str(next(iter(given.values())))[:12]}",
)
def test_a_huge_input_takes_no_long_time_and_is_not_allowed(given):
    """Without bounds the first takes a minute: every `/` is a look at the file system."""
    call = Call.of({"kind": "read", "rawInput": given}, cwd="/work", session="s", agent="a")
    rules = [
        Rule("allow_once", kind=["read"], path=["/**"]),
        Rule("allow_once", argv=["git"], options=["*"]),
        Rule("deny", path=["**/.env"]),
    ]

    assert decide(rules, "ask", call).action in ("ask", "deny")


def test_a_path_with_half_a_surrogate_pair_is_not_allowed():
    given = {"path": "~\ud800/x", "cwd": "~\ud800", "command": "cat ~\ud800"}
    rules = [Rule("allow_once", kind=["read"], path=["/**"]), Rule("allow_once", argv=["cat"])]

    for kind in ("read", "execute"):
        call = Call.of({"kind": kind, "rawInput": given}, cwd="/work", session="s", agent="a")
        assert decide(rules, "ask", call).action == "ask"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"path": "a"}, "rule 1: the path `a` cannot be resolved"),
        ({"command": "cat", "cwd": "/"}, "rule 2: the directory of the session is not known"),
    ],
)
def test_nothing_is_allowed_in_a_directory_with_a_null_character(given, reason):
    rules = [Rule("allow_once", kind=["read"], path=["**"]), Rule("allow_once", argv=["cat"])]
    kind = "execute" if "command" in given else "read"
    call = Call.of({"kind": kind, "rawInput": given}, cwd="/a\0b", session="s", agent="a")

    decision = decide(rules, "ask", call)
    assert (decision.action, decision.reasons) == ("ask", (reason,))
