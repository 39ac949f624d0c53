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


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        ({"command": "git status"}, "git status"),
        ({"command": ["git", "status"]}, "git status"),
        ({"command": ["bash", "-lc", "git status"]}, "git status"),
        ({"cmd": "git", "args": ["push", "-f"]}, "git push -f"),
        ({"command": ["git", "push -f"]}, "git 'push -f'"),
        ('{"command": "git status"}', "git status"),
        ({}, None),
        (None, None),
        ("text", None),
    ],
)
def test_the_command_is_found_in_the_raw_input(raw, command):
    assert call(kind="execute", rawInput=raw).commands.texts == ((command,) if command else ())


def test_the_paths_are_all_that_the_call_names():
    found = call(
        rawInput={"file_path": "src/../a.py"},
        locations=[{"path": "/work/b.py"}, {"path": "/work/a.py"}],
        content=[
            {"type": "diff", "path": "/work/c.py"},
            {"type": "diff", "changes": [{"path": "/work/d", "oldPath": "/work/e"}]},
        ],
    )
    read = [each.lexical for readings in found.paths.paths.values() for each in readings]
    assert sorted({*read}) == [f"/work/{name}" for name in ["a.py", "b.py", "c.py", "d", "e"]]


@pytest.mark.parametrize(
    "members",
    [
        {"name": "mcp__github__list"},
        {"_meta": {"claudeCode": {"toolName": "mcp__github__list"}}},
        {
            "_meta": {
                "claudeCode": {"toolName": "mcp__git_hub__list", "mcpServer": {"name": "git hub"}}
            },
        },
    ],
)
def test_a_tool_of_an_mcp_server_is_recognised(members):
    assert Rule("allow_once", mcp_tool=["git?hub/list", "github/list"]).matches(call(**members))


@pytest.mark.parametrize(
    "members",
    [
        {"title": "mcp__github__list", "kind": "other"},
        {"title": "github__list"},
        {"title": "list (github MCP Server)"},
        {"title": "anything", "rawInput": {"server": "github", "tool": "list"}},
        {"title": "github/list", "kind": "read"},
        {"kind": "read", "rawInput": {"invocation": {"server": "github", "tool": "list"}}},
        {"kind": "other"},
    ],
)
def test_a_tool_that_the_model_may_have_named_is_denied_and_not_allowed(members):
    assert Rule("deny", mcp_tool=["github/*"]).matches(call(**members))
    assert not Rule("allow_once", mcp_tool=["github/*"]).matches(call(**members))


def test_input_of_unexpected_shape_yields_no_command_and_no_path():
    odd = call(rawInput={"path": 5, "file_path": "", "server": "x", "tool": 1}, locations=["x"])

    assert (dict(odd.paths.paths), odd.tool.sure) == ({}, False)


def test_a_command_that_looks_like_a_tool_is_none():
    rule = Rule("allow_once", mcp_tool=["github/*"])

    assert not rule.matches(call(kind="execute", title="github__x"))
    assert not rule.matches(call(kind="other", title="github__x; rm -rf /"))


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


def test_an_allowed_path_must_be_every_path_and_a_denied_one_any():
    both = call(locations=[{"path": "/work/src/a"}, {"path": "/etc/passwd"}])

    assert not Rule("allow_once", path=["src/**"]).matches(both)
    assert Rule("allow_once", path=["src/**", "/etc/*"]).matches(both)
    assert Rule("deny", path=["/etc"]).matches(both)
    assert not Rule("allow_once", path=["**"]).matches(call())


def test_a_path_cannot_climb_out():
    assert not Rule("allow_once", path=["src/**"]).matches(
        call(locations=[{"path": "/work/src/../../etc/passwd"}])
    )


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "src" / "link").symlink_to(tmp_path / "secret")
    where = {"cwd": str(tmp_path), "session": "s", "agent": "a"}
    linked = Call.of({"locations": [{"path": str(tmp_path / "src/link")}]}, **where)
    plain = Call.of({"locations": [{"path": str(tmp_path / "src/file")}]}, **where)

    assert not Rule("allow_once", path=["src/**"]).matches(linked)
    assert Rule("deny", path=["secret"]).matches(linked)
    assert Rule("allow_once", path=["src/**"]).matches(plain)


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.py", "/work/a.py", True),
        ("*.py", "/work/src/a.py", False),
        ("**/*.py", "/work/a.py", True),
        ("**/*.py", "/work/src/deep/a.py", True),
        ("src", "/work/src/a.py", True),
        ("src", "/work/src2/a.py", False),
        ("a?", "/work/ab", True),
        ("a?", "/work/a/", False),
        ("/other/**", "/other/x", True),
    ],
)
def test_globs(glob, path, expected):
    assert Rule("deny", path=[glob]).matches(call(locations=[{"path": path}])) is expected


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


def test_a_regular_expression_is_checked():
    with pytest.raises(ValueError, match="not a regular expression: missing"):
        Rule("deny", title="(")


def test_a_rule_is_matched_in_linear_time():
    told = run("a" * 50_000 + "!")

    assert not Rule("allow_once", command="(a+)+b").matches(told)
    assert not Rule("deny", command="(a|aa)+b").matches(told)
    assert not Rule("deny", title="(a+)+b").matches(call(title="a" * 50_000))


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
