from __future__ import annotations

import pytest

from conductor.proxy.tool_names import tool_table
from proxies.permissions.rules import Rule, decide
from proxies.shared.tool_calls.call import Call


def call(**members):
    table = tool_table("claude-agent-acp")
    return Call.of(members, cwd="/work", session="s1", agent="claude-agent", table=table)


def run(command):
    return call(kind="execute", title="`x`", rawInput={"command": command})


def test_input_of_unexpected_shape_yields_no_command_and_no_path():
    odd = call(rawInput={"path": 5, "file_path": "", "server": "x", "tool": 1}, locations=["x"])

    assert (dict(odd.paths.paths), odd.tool.sure) == ({}, False)


@pytest.mark.parametrize(
    "command",
    ["git log; x", "git log | x", "git log && x", "git log $(x)", "git log `x`", "git log > x"],
)
def test_a_chain_of_commands_is_not_allowed_by_the_rule_for_the_first(command):
    assert Rule("allow_once", command="git log").matches(run("git log"))
    assert not Rule("allow_once", command="git log.*").matches(run(command))
    assert Rule("allow_once", command="git log.*", chained=True).matches(run(command))
    assert Rule("deny", command="git log").matches(run(command))


def test_an_allowed_command_must_match_as_a_whole_and_a_denied_one_in_part():
    assert not Rule("allow_once", command="git").matches(run("git push"))
    assert Rule("deny", command="push").matches(run("git push"))
    assert Rule("ask", command="push").matches(run("git push"))


def test_a_title_denies_but_does_not_allow_a_command():
    told = call(kind="execute", title="`rm -rf /`")

    assert Rule("deny", command="^`?rm ").matches(told)
    assert not Rule("allow_once", command=".*").matches(told)
    assert not Rule("deny", command="rm").matches(call(kind="read", title="rm"))


def test_everything_that_a_rule_names_must_match():
    told = call(kind="read", title="Read a.py")

    assert Rule("deny", kind=["edit", "read"], title="a.py", agent=["claude*"]).matches(told)
    assert not Rule("deny", kind=["edit"], title="a.py").matches(told)
    assert not Rule("deny", kind=["read"], title="b.py").matches(told)
    assert not Rule("deny", kind=["read"], agent=["codex*"]).matches(told)
    assert not Rule("deny", session=["s2"]).matches(told)
    assert Rule("deny").matches(told)


def test_the_first_rule_that_matches_is_the_one():
    rules = [Rule("deny", kind=["edit"]), Rule("ask", kind=["read"]), Rule("deny")]

    found = decide(rules, "ask", call(kind="read"))
    assert (found.number, found.rule) == (2, rules[1])
    assert decide(rules[:2], "ask", call(kind="think")).rule is None


@pytest.mark.parametrize("member", ["title", "command"])
def test_an_unsupported_pattern_is_an_error_when_the_rule_is_read(member):
    with pytest.raises(ValueError, match="negative lookahead"):
        Rule("deny", **{member: "git (?!push)"})


def test_a_session_directory_that_is_a_link_covers_its_files_under_both_names(tmp_path):
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "real" / "out").symlink_to("/")
    (tmp_path / "cwd").symlink_to("real")
    rule = Rule("allow_once", path=["src/**", "out/**"])

    def allowed(path):
        members = {"kind": "read", "rawInput": {"path": str(path)}}
        return rule.matches(Call.of(members, cwd=str(tmp_path / "cwd"), session="s", agent="a"))

    assert allowed(tmp_path / "cwd/src/a.py")
    assert allowed(tmp_path / "real/src/a.py")
    assert not allowed(tmp_path / "real/other")
    assert not allowed(tmp_path / "real/out/etc/shadow")


def test_a_rule_that_asks_and_is_not_certain_lets_a_later_rule_deny():
    unknown = call(kind="other", title="x")
    ask, deny = Rule("ask", mcp_tool=["a/*"]), Rule("deny", mcp_tool=["b/*"])

    found = decide([ask, deny], "ask", unknown)
    assert (found.number, found.rule) == (2, deny)
    found = decide([ask, Rule("allow_once", kind=["other"])], "ask", unknown)
    assert (found.number, found.rule) == (1, ask)


def test_a_default_of_allow_equals_a_rule_without_conditions():
    assert decide([], "allow_once", call(kind="read")).action == "allow_once"
    assert decide([], "allow_once", call(kind="switch_mode")).action == "ask"
    assert decide([], "deny", call(kind="switch_mode")).action == "deny"


def test_argv_is_for_rules_that_allow():
    with pytest.raises(ValueError, match="needs `command`"):
        Rule("deny", argv=["git push"])
    with pytest.raises(ValueError, match="belong to `argv`"):
        Rule("allow_once", options=["--stat"])
