"""Chains by project: several chains behind one editor's connection, with real programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.peers.process import Editor, Message, chunk, proxy, python

from conductor.chainfile.project_file import read_project_file
from conductor.chainfile.trust_store import TrustedFile, remember

FILE = ".acp-conductor.yaml"
AGENT = python("echo_agent.py", "--own-ids")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    for name in ("one", "two", "plain"):
        (path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(path / "state"))
    return path


def write(directory: Path, *proxies: Any, trusted: bool = True) -> Path:
    """The file of a project with these proxies."""
    items = [{"run": each} if isinstance(each, list) else each for each in proxies]
    path = directory / FILE
    path.write_text(json.dumps({"version": 1, "proxies": items}))
    if trusted:
        remember(TrustedFile(str(path), read_project_file(str(path), os.environ).files))
    return path


class Sessions:
    """An editor with sessions in several directories."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        assert "result" in editor.initialize()

    def new(self, directory: Path) -> str:
        answer = self.set_up(directory)
        session: str = answer["result"]["sessionId"]
        return session

    def set_up(self, directory: Path) -> Message:
        request = self.editor.request("session/new", cwd=str(directory), mcpServers=[])
        return self.editor.answer(request)

    def ask(self, session: str, text: str = "echo hi") -> str:
        self.editor.others.clear()
        answer = self.editor.answer(self.editor.prompt(text, session))
        assert answer["result"]["stopReason"] == "end_turn", answer
        return "".join(map(chunk, self.editor.others))


@pytest.fixture
def run(start: Callable[..., Editor], chain_file: Callable[..., Path]) -> Callable[..., Sessions]:
    def run(*options: str, cwd: Path | None = None, file: Path | None = None) -> Sessions:
        file = file or chain_file(AGENT, on_start_failure="error")
        return Sessions(start("run", *options, file, cwd=cwd))

    return run


def test_sessions_of_two_projects_have_the_proxies_of_their_own(
    run: Callable[..., Sessions], home: Path
) -> None:
    write(home / "one", proxy("first"))
    write(home / "two", proxy("second"))
    sessions = run(cwd=home)

    plain, one, two = (sessions.new(home / name) for name in ("plain", "one", "two"))
    below = home / "one" / "src"
    below.mkdir()
    same = sessions.new(below)

    assert sessions.ask(plain) == "hi"
    assert sessions.ask(one) == "first>[first]hi"
    assert sessions.ask(two) == "second>[second]hi"
    assert sessions.ask(same) == "first>[first]hi"
    assert sessions.ask(plain) == "hi"
    assert len(sessions.editor.components) == 5  # three agents, two proxies
    assert sessions.editor.leave() == 0


def test_questions_to_the_editor_of_two_chains_have_ids_of_their_own(
    run: Callable[..., Sessions], home: Path
) -> None:
    write(home / "one", proxy("first"))
    sessions = run(cwd=home)
    editor = sessions.editor
    prompts = {
        editor.prompt("perm", session): session
        for session in (sessions.new(home / "plain"), sessions.new(home / "one"))
    }

    questions = [editor.next(lambda each: "permission" in each.get("method", "")) for _ in prompts]
    assert len({each["id"] for each in questions}) == 2
    for each in reversed(questions):
        option = f"for-{each['params']['sessionId']}"
        result = {"outcome": {"outcome": "selected", "optionId": option}}
        editor.send({"id": each["id"], "result": result})
    editor.others.clear()
    for prompt in prompts:
        assert "result" in editor.answer(prompt)

    told = {
        each["params"]["sessionId"]: chunk(each).removeprefix("first>[first]")
        for each in editor.others
        if each.get("method") == "session/update"
    }
    assert told == {session: f"for-{session}" for session in prompts.values()}
    assert editor.leave() == 0


@pytest.mark.fast
def test_an_untrusted_file_runs_nothing_and_without_a_changed_one_there_is_no_session(
    run: Callable[..., Sessions], chain_file: Callable[..., Path], home: Path
) -> None:
    script = f"open({str(home / 'ran')!r}, 'w')"
    file = write(home / "one", [sys.executable, "-c", script], trusted=False)
    sessions = run(cwd=home, file=chain_file(AGENT))

    session = sessions.new(home / "one")
    assert f"{file} is not trusted yet" in sessions.ask(session)
    assert sessions.ask(session) == "hi"
    assert sessions.ask(sessions.new(home / "one")) == "hi"  # told once
    assert not (home / "ran").exists()

    write(home / "one", proxy("first"))
    trusted = sessions.new(home / "one")
    assert sessions.ask(trusted) == "first>[first]hi"
    assert sessions.ask(session) == "hi"

    write(home / "one", [sys.executable, "-c", script], trusted=False)
    assert "has changed since you trusted it" in sessions.ask(sessions.new(home / "one"))
    assert sessions.ask(trusted) == "first>[first]hi"
    assert not (home / "ran").exists()
    assert sessions.editor.leave() == 0


def test_running_sessions_keep_their_chain_when_the_file_changes(
    run: Callable[..., Sessions], chain_file: Callable[..., Path], home: Path
) -> None:
    file = chain_file(AGENT, proxy("old"), on_start_failure="error")
    sessions = run(cwd=home, file=file)
    old = sessions.new(home)

    chain_file(AGENT, proxy("new"), on_start_failure="error")
    new = sessions.new(home)

    assert sessions.ask(old) == "old>[old]hi"
    assert sessions.ask(new) == "new>[new]hi"
    chain_file(AGENT, proxy("newest"), on_start_failure="error")
    assert sessions.ask(sessions.new(home)) == "newest>[newest]hi"
    assert sessions.ask(new) == "new>[new]hi"
    assert sessions.editor.leave() == 0


def test_a_chain_ends_with_its_last_session(run: Callable[..., Sessions], home: Path) -> None:
    write(home / "one", python("pass_proxy.py", "--name", "first"))
    file = home / "chain.yaml"
    file.write_text(
        json.dumps({"version": 1, "agent": {"run": python("echo_agent.py", "--own-ids")}})
    )
    sessions = run(cwd=home, file=file)
    one, two = sessions.new(home / "one"), sessions.new(home / "one")
    assert len(sessions.editor.components) == 3

    for session in (one, two):
        sessions.editor.answer(sessions.editor.request("session/close", sessionId=session))
    sessions.editor.wait_log("chain ended")

    assert len(sessions.editor.components) == 1
    assert "result" in sessions.set_up(home / "one")
    assert len(sessions.editor.components) == 3
    assert sessions.editor.leave() == 0


def test_the_crash_of_a_project_chain_is_local(run: Callable[..., Sessions], home: Path) -> None:
    write(home / "one", {"run": proxy("first"), "on_failure": "end_chain"})
    sessions = run(cwd=home)
    plain, one = sessions.new(home / "plain"), sessions.new(home / "one")
    first = next(each for each in sessions.editor.components if "--tag" in each.cmdline())

    turn = sessions.editor.prompt("wait", one)
    sessions.ask(plain)
    first.kill()

    assert "pass_proxy" in sessions.editor.answer(turn)["error"]["message"]
    refused = sessions.editor.answer(sessions.editor.prompt("echo hi", one))
    assert "pass_proxy" in refused["error"]["message"]
    assert sessions.ask(plain) == "hi"
    assert sessions.ask(sessions.new(home / "one")) == "first>[first]hi"
    assert sessions.editor.leave() == 0


def test_a_signal_ends_all_chains(run: Callable[..., Sessions], home: Path) -> None:
    import signal

    write(home / "one", proxy("first"))
    sessions = run(cwd=home)
    turn = sessions.editor.prompt("wait", sessions.new(home / "one"))
    sessions.ask(sessions.new(home / "plain"))

    sessions.editor.signal(signal.SIGTERM)

    assert sessions.editor.answer(turn)["result"] == {"stopReason": "cancelled"}
    assert sessions.editor.wait() == 143


@pytest.mark.parametrize("option", ["--no-project", "--no-user"])
def test_options_turn_the_files_off(run: Callable[..., Sessions], home: Path, option: str) -> None:
    write(home / "one", proxy("project"))
    path = home / "config" / "acp-conductor" / "chain.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 1, "proxies": [{"run": proxy("user")}]}))
    sessions = run(option, cwd=home)

    kept = "user" if option == "--no-project" else "project"
    assert sessions.ask(sessions.new(home / "one")) == f"{kept}>[{kept}]hi"
    assert sessions.editor.leave() == 0


def test_a_chain_of_the_user_is_run_by_its_name_with_wrap_and_run(
    start: Callable[..., Editor], home: Path
) -> None:
    path = home / "config" / "acp-conductor" / "chains" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"version": 1, "proxies": [{"run": proxy("mine")}], "agent": {"run": AGENT}})
    )
    write(home / "one", proxy("first"))

    for arguments in (["run", "mine"], ["wrap", "--chain", "mine", "--", *AGENT]):
        sessions = Sessions(start(*arguments, cwd=home))
        assert sessions.ask(sessions.new(home / "one")) == "mine>first>[first][mine]hi"
        assert sessions.editor.leave() == 0


def test_conditions_decide_for_the_client_and_the_directory(
    run: Callable[..., Sessions], chain_file: Callable[..., Path], home: Path
) -> None:
    file = chain_file(
        AGENT,
        {"run": proxy("zed"), "when": {"client": "zed"}},
        {"run": proxy("one"), "when": {"cwd": str(home / "one")}},
        {"run": proxy("fs"), "when": {"capability": "fs.readTextFile"}},
        on_start_failure="error",
    )
    sessions = run(cwd=home, file=file)

    assert sessions.ask(sessions.new(home / "plain")) == "hi"
    assert sessions.ask(sessions.new(home / "one")) == "one>[one]hi"
    assert "client: zed" in sessions.editor.wait_log("component left out")
    assert sessions.editor.leave() == 0
