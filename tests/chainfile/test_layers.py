"""The chains of the user, the command and the project become one."""

from __future__ import annotations

from conductor.chainfile import load
from conductor.chainfile.layers import merged
from conductor.limits import Limits


def chain(tmp_path, text, name):
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"version: 1\n{text}")
    return load(path)


def test_the_users_proxies_come_first_and_the_projects_next_to_the_agent(tmp_path):
    command = chain(tmp_path, "proxies: [{run: b}]\nagent: {run: agent}\n", "command")
    user = chain(tmp_path, "proxies: [{run: a}]\n", "user")
    project = chain(tmp_path, "proxies: [{run: c}]\n", "project")

    found = merged(command, user, project)

    assert [each.name for each in found.flat()] == ["a", "b", "c", "agent"]
    assert [str(each.location.path) for each in found.flat()] == [
        str(tmp_path / f"{name}.yaml") for name in ("user", "command", "project", "command")
    ]
    assert (found.name, found.path) == ("command", str(tmp_path / "command.yaml"))


def test_the_commands_components_keep_their_names(tmp_path):
    command = chain(tmp_path, "proxies: [{use: context}]\nagent: {run: cat}\n", "command")
    other = chain(tmp_path, "proxies: [{use: context}, {run: cat}]\n", "other")

    assert [each.name for each in merged(command, other, other).flat()] == [
        *("context-2", "cat-2", "context", "context-3", "cat-3", "cat"),
    ]


def test_the_project_overrides_the_command_and_that_the_user(tmp_path):
    user = chain(
        tmp_path,
        "proxies: []\nmcp_bridge: off\nmcp: {required: true}\n"
        "limits: {max_sessions: 1, max_batch: 1, max_open_requests: 1}\n",
        "user",
    )
    command = chain(
        tmp_path,
        "agent: {run: a}\nmcp_bridge: stdio\nlimits: {max_sessions: 2, max_batch: 2}\n",
        "command",
    )
    project = chain(
        tmp_path, "proxies: []\nmcp: {start_timeout: 3s}\nlimits: {max_sessions: 3}\n", "project"
    )

    found = merged(command, user, project)

    assert found.mcp_bridge == "stdio"
    assert (found.mcp.required, found.mcp.start_timeout) == (True, 3.0)
    assert found.limits == Limits(max_sessions=3, max_batch=2, max_open_requests=1)


def test_without_other_files_the_chain_stays_as_it_is(tmp_path):
    command = chain(tmp_path, "agent: {run: a}\n", "command")

    assert merged(command) is command
