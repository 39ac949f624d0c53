"""Measures before which tool calls real agents ask, and writes the table of
`conductor.proxy.agent_questions`.

    ACP_TEST_CLAUDE=1 ACP_TEST_CODEX=1 ACP_TEST_GEMINI=1 ACP_TEST_QWEN=1 ACP_TEST_OPENCODE=1 \\
        ACP_TEST_VIBE=1 ACP_TEST_FAST_AGENT=1 PYTHONPATH=tests python -m support.measure_questions

Each agent runs with the settings of a fresh installation, but for its model, a scripted one on
loopback. It is told to read a file of its project, write one and run a command, with its own tools.
A call counts only if the file was read, written or made. Before some calls a model decides whether
the user is asked: a real one may decide otherwise than the scripted one, so that these are `model`.
If some are not asked about, the agent runs again with each of its `remedies`, and the table gets
the first with which it asks. Agents whose variable is not set keep their entries.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio
import yaml

from conductor.chainfile.model import ComponentSpec
from conductor.error_codes import RESOURCE_NOT_FOUND
from conductor.errors import RequestError
from conductor.proxy.agent_questions import TABLE
from conductor.testing import FakeClient, open_chain
from support.bridges_real_agents import PLACE, Model, from_npm, model_url
from support.record_agents import ALL_PROGRAMS, CODEX

_HEADER: Final = """\
# Before which tool calls agents ask the user (`session/request_permission`), in the mode of a fresh
# installation. Measured: `tests/support/measure_questions.py` writes this file.
#
# agent    `agentInfo.name`, measured in this version, on this day
# mode     the session's mode, if it has modes
# asks     by kind of call: true; false; or `model`: a model decides whether the user is asked. What
#          could not be measured is absent
# remedy   settings of the agent with which it asks before the calls of the kinds in `then`
"""
_NOTE: Final = "Buy milk.\n"
_MORE: Final = "Buy milk and bread.\n"
_PROMPTS: Final = {"read": "Look into it.", "write": "Put it down.", "command": "Make one."}
_NAMED: Final = {"read": "notes.txt", "write": "notes.txt", "command": "build.sh"}
"""What the arguments of a call have, and the prompts have not."""
_CAPABILITIES: Final = {"fs": {"readTextFile": True, "writeTextFile": True}}


@attrs.frozen
class Setting:
    """A change of an agent's settings: what a user is told, and how it is made here."""

    text: str
    change: Callable[[Path, dict[str, str]], None]
    """Called with the home directory and the environment of the agent."""


@attrs.frozen
class Measured:
    """An agent, its tools by kind of call (`@file@` is the path of the file), and its remedies."""

    program: Callable[[], tuple[str, ...]]
    environment: Callable[[str, Path], dict[str, str]]
    tools: Mapping[str, tuple[str, Mapping[str, Any]]]
    variable: str
    remedies: tuple[Setting, ...] = ()


@attrs.define(eq=False)
class AskingModel(Model):
    """Calls the tool of the last prompt, then says `Done.`; keeps what else it was asked."""

    tools: Mapping[str, tuple[str, Mapping[str, Any]]]
    work: Path
    kind: str | None = None
    is_called: bool = False
    others: list[str] = attrs.field(factory=list)
    """Requests between the call and its result: those of a model that decides about the call."""
    results: list[str] = attrs.field(factory=list)

    def begin(self, kind: str) -> None:
        self.kind, self.is_called = kind, False
        self.others.clear()
        self.results.clear()

    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        said = {"role": "assistant", "content": "Done."}
        if self.kind is None:
            return said, "stop"
        told, id = json.dumps(asked), f"call-{self.kind}"
        name, arguments = self.tools[self.kind]
        if not self.is_called and _PROMPTS[self.kind] in told and f'"{name}"' in told:
            self.is_called = True
            filled = json.dumps(arguments).replace("@work@", str(self.work))
            function = {"name": name, "arguments": filled}
            call = {"index": 0, "id": id, "type": "function", "function": function}
            return {**said, "content": None, "tool_calls": [call]}, "tool_calls"
        if self.is_called:
            last = json.dumps(asked.get("messages", [{}])[-1])
            if "tool_result" in last or asked["messages"][-1]["role"] == "tool":
                self.results.append(last)
            elif not self.results and _NAMED[self.kind] in told:
                self.others.append(told)
        return said, "stop"


def _npm(name: str) -> Callable[[], tuple[str, ...]]:
    known = ALL_PROGRAMS[name]
    return lambda: (
        from_npm(known.package, known.program, variable=known.variable),
        *known.arguments,
    )


def _pypi(package: str, name: str, *arguments: str) -> Callable[[], tuple[str, ...]]:
    def program() -> tuple[str, ...]:
        place = PLACE / f"v-{package}"
        if not (place / "bin" / name).exists():
            venv = ["venv", "--clear", "--python", ">=3.12", str(place)]
            for argv in (venv, ["pip", "install", "--python", str(place), package]):
                subprocess.run(["uv", *argv], check=True, timeout=300)
        return (str(place / "bin" / name), *arguments)

    return program


def _codex(url: str, home: Path) -> dict[str, str]:
    environment = ALL_PROGRAMS[CODEX].environment(url, home)
    settings = home / "config.toml"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("approv")))
    return {name: value for name, value in environment.items() if name != "INITIAL_AGENT_MODE"}


def _opencode(url: str, home: Path) -> dict[str, str]:
    environment = ALL_PROGRAMS["opencode"].environment(url, home)
    settings = json.loads(environment["OPENCODE_CONFIG_CONTENT"])
    del settings["permission"]
    return {**environment, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


def _opencode_asks(home: Path, environment: dict[str, str]) -> None:
    settings = json.loads(environment["OPENCODE_CONFIG_CONTENT"])
    settings["permission"] = {"read": "ask", "edit": "ask", "bash": "ask"}
    environment["OPENCODE_CONFIG_CONTENT"] = json.dumps(settings)


def _claude_asks(home: Path, environment: dict[str, str]) -> None:
    _merge_json(home / ".claude" / "settings.json", {"permissions": {"defaultMode": "default"}})


def _qwen_asks(home: Path, environment: dict[str, str]) -> None:
    _merge_json(home / ".qwen" / "settings.json", {"tools": {"approvalMode": "default"}})


def _merge_json(file: Path, settings: Mapping[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    written = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**written, **settings}))


def _codex_asks(home: Path, environment: dict[str, str]) -> None:
    environment["INITIAL_AGENT_MODE"] = "read-only"


def _vibe_asks(home: Path, environment: dict[str, str]) -> None:
    file = home / ".vibe" / "config.toml"
    file.write_text('default_agent = "ask"\n' + file.read_text())


def _vibe(url: str, home: Path) -> dict[str, str]:
    settings = {
        "active_model": "test",
        "enable_telemetry": False,
        "enable_update_checks": False,
        "providers": [{"name": "local", "api_base": url, "api_key_env_var": ""}],
        "models": [{"name": "test", "provider": "local", "alias": "test"}],
    }
    (home / ".vibe").mkdir()
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    (home / ".vibe" / "config.toml").write_text("\n".join(lines))
    return {"MISTRAL_API_KEY": "none"}


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml(each)}' for name, each in value.items())}}}"
    return json.dumps(value)


def _fast_agent(url: str, home: Path) -> dict[str, str]:
    return {"GENERIC_BASE_URL": url, "GENERIC_API_KEY": "none"}


_FILE: Final = "@work@/notes.txt"
_BUILD: Final = "sh @work@/build.sh"
_RUN: Final = {"command": _BUILD, "description": "Build it"}
_PATCH: Final = """\
apply_patch <<'EOF'
*** Begin Patch
*** Update File: @work@/notes.txt
@@
-Buy milk.
+Buy milk and bread.
*** End Patch
EOF"""
AGENTS: Final[Mapping[str, Measured]] = {
    "claude-agent-acp": Measured(
        _npm("claude-agent-acp"),
        ALL_PROGRAMS["claude-agent-acp"].environment,
        {
            "read": ("Read", {"file_path": _FILE}),
            "write": ("Write", {"file_path": _FILE, "content": _MORE}),
            "command": ("Bash", _RUN),
        },
        "ACP_TEST_CLAUDE",
        (
            Setting(
                '`"permissions": {"defaultMode": "default"}` in ~/.claude/settings.json',
                _claude_asks,
            ),
        ),
    ),
    CODEX: Measured(
        _npm(CODEX),
        _codex,
        {
            "read": ("exec_command", {"cmd": "cat notes.txt"}),
            "write": ("exec_command", {"cmd": _PATCH}),
            "command": ("exec_command", {"cmd": _BUILD}),
        },
        "ACP_TEST_CODEX",
        (Setting("`INITIAL_AGENT_MODE: read-only` under `env:` of the agent", _codex_asks),),
    ),
    "gemini-cli": Measured(
        _npm("gemini-cli"),
        ALL_PROGRAMS["gemini-cli"].environment,
        {
            "read": ("read_file", {"file_path": _FILE}),
            "write": ("write_file", {"file_path": _FILE, "content": _MORE}),
            "command": ("run_shell_command", _RUN),
        },
        "ACP_TEST_GEMINI",
    ),
    "qwen-code": Measured(
        _npm("qwen-code"),
        ALL_PROGRAMS["qwen-code"].environment,
        {
            "read": ("read_file", {"file_path": _FILE}),
            "write": ("write_file", {"file_path": _FILE, "content": _MORE}),
            "command": ("run_shell_command", {**_RUN, "is_background": False}),
        },
        "ACP_TEST_QWEN",
        (Setting('`"tools": {"approvalMode": "default"}` in ~/.qwen/settings.json', _qwen_asks),),
    ),
    "opencode": Measured(
        _npm("opencode"),
        _opencode,
        {
            "read": ("read", {"filePath": _FILE}),
            "write": ("write", {"filePath": _FILE, "content": _MORE}),
            "command": ("bash", _RUN),
        },
        "ACP_TEST_OPENCODE",
        (
            Setting(
                '`"permission": {"read": "ask", "edit": "ask", "bash": "ask"}` in opencode.json',
                _opencode_asks,
            ),
        ),
    ),
    "vibe": Measured(
        _pypi("mistral-vibe", "vibe-acp"),
        _vibe,
        {
            "read": ("read_file", {"path": _FILE}),
            "write": ("write_file", {"path": _FILE, "content": _MORE}),
            "command": ("bash", {"command": _BUILD}),
        },
        "ACP_TEST_VIBE",
        (Setting('`default_agent = "ask"` in ~/.vibe/config.toml', _vibe_asks),),
    ),
    "fast-agent": Measured(
        _pypi("fast-agent-mcp", "fast-agent-acp", "--model", "generic.test", "-x"),
        _fast_agent,
        {
            "read": ("read_text_file", {"path": _FILE}),
            "write": ("write_text_file", {"path": _FILE, "content": _MORE}),
            "command": ("bash", {"command": _BUILD}),
        },
        "ACP_TEST_FAST_AGENT",
    ),
}


async def measure(agent: Measured, directory: Path, setting: Setting | None) -> dict[str, Any]:
    """Run an agent in an empty directory; returns its entry of the table."""
    home, work = directory / "home", directory / "work"
    home.mkdir()
    work.mkdir()
    (work / "notes.txt").write_text(_NOTE)
    (work / "build.sh").write_text(f"touch {work}/made\n")
    model = AskingModel(agent.tools, work)
    async with model_url(model) as url:
        environment = {"HOME": str(home), **agent.environment(url, home)}
        if setting is not None:
            setting.change(home, environment)
        run = agent.program()
        spec = ComponentSpec("agent", run=run, env=environment, cwd=str(work), start_timeout=60)
        with trio.fail_after(240):
            async with open_chain(spec, bridged=False) as client:
                client.handlers |= _HANDLERS
                info = (await client.initialize(capabilities=_CAPABILITIES))["agentInfo"]
                setup = {"cwd": str(work), "mcpServers": []}
                opened = await client.request("session/new", setup)
                session, mode = opened["sessionId"], _mode(opened)
                asks = {
                    kind: asked
                    for kind in agent.tools
                    if (asked := await _asks(client, session, model, kind)) is not None
                }
    found = {"agent": info["name"], "version": info["version"]}
    return {**found, **({"mode": mode} if mode else {}), "asks": asks}


async def _asks(
    client: FakeClient, session: str, model: AskingModel, kind: str
) -> bool | str | None:
    """Whether the agent asked before a call of this kind; `None` if the call had no effect."""
    before = len(client.transcript.of("session/request_permission"))
    model.begin(kind)
    await client.prompt(session, _PROMPTS[kind])
    asked = len(client.transcript.of("session/request_permission")) > before
    is_done = {
        "read": any(_NOTE.strip() in each for each in model.results),
        "write": (model.work / "notes.txt").read_text() == _MORE,
        "command": (model.work / "made").exists(),
    }[kind]
    if model.others:
        return "model"
    return asked if is_done else None


def _mode(opened: Mapping[str, Any]) -> str | None:
    if modes := opened.get("modes"):
        return str(modes["currentModeId"])
    options = opened.get("configOptions") or ()
    chosen = [each["currentValue"] for each in options if each.get("category") == "mode"]
    return chosen[0] if chosen else None


def _read(params: Any) -> dict[str, Any]:
    try:
        return {"content": Path(params["path"]).read_text()}
    except OSError as exc:
        raise RequestError(RESOURCE_NOT_FOUND, str(exc)) from exc


def _write(params: Any) -> dict[str, Any]:
    Path(params["path"]).write_text(params["content"])
    return {}


def _allow(params: Any) -> dict[str, Any]:
    option = next(each for each in params["options"] if each["kind"] == "allow_once")
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


_HANDLERS: Final = {
    "session/request_permission": _allow,
    "fs/read_text_file": _read,
    "fs/write_text_file": _write,
}


def entry_of(agent: Measured) -> dict[str, Any]:
    """Measure an agent, and its remedies if it does not ask before everything."""
    found = _measured(agent, None)
    found = {"agent": found["agent"], "version": found["version"], "date": _today(), **found}
    best = _asked_about(found["asks"])
    for setting in agent.remedies:
        then = _measured(agent, setting)["asks"]
        if len(_asked_about(then)) > len(best):
            found |= {"remedy": setting.text, "then": then}
            best = _asked_about(then)
    return found


def _measured(agent: Measured, setting: Setting | None) -> dict[str, Any]:
    # Not in /tmp: the sandbox of codex has one of its own there, without its programs.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        return trio.run(measure, agent, Path(directory), setting)


def _asked_about(asks: Mapping[str, Any]) -> list[str]:
    return [kind for kind, asked in asks.items() if asked is True]


def _today() -> datetime.date:
    return datetime.date.today()


def main() -> None:
    entries = {each["agent"]: each for each in yaml.safe_load(TABLE.read_text())}
    for name, agent in AGENTS.items():
        if os.environ.get(agent.variable):
            entry = entry_of(agent)
            entries[entry["agent"]] = entry
            print(name, entry, file=sys.stderr)
    ordered = [entries[name] for name in sorted(entries, key=str.lower)]
    texts = [yaml.safe_dump([each], sort_keys=False, width=1000) for each in ordered]
    TABLE.write_text(_HEADER + "\n".join(texts))


if __name__ == "__main__":
    main()
