"""Makes the recordings of `conductor.testing`: real agents from npm, a scripted model on loopback.

    ACP_TEST_CLAUDE=1 ACP_TEST_GEMINI=1 ACP_TEST_QWEN=1 ACP_TEST_OPENCODE=1 \\
        PYTHONPATH=tests python -m support.record_agents [DIRECTORY]

The conversation is the same for all: a text, a file read, a file written with permission, a command
that the user rejects, a turn that the user cancels.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO

import attrs
import trio

from conductor.chainfile.model import ComponentSpec
from conductor.errors import RequestError
from conductor.proxy import Proxy, RawMessage, on
from conductor.testing import open_chain
from conductor.testing.recording import PROJECT
from support.bridges_real_agents import Model, from_npm, model_url

PROMPTS = ("Say hello.", "Read notes.txt.", "Write notes.txt.", "Run the tests.", "Think long.")
_NOTE = "Buy milk.\n"
DIRECTORY = Path(__file__).parents[2] / "conductor" / "testing" / "recordings"


@attrs.define
class Recorder(Proxy):
    """A proxy that records what passes through it, as the Rust conductor does.

    `replace` maps texts that must not be recorded, such as the path of a home directory, to others.
    """

    file: Path = attrs.field(converter=Path)
    replace: dict[str, str] = attrs.field(factory=dict)
    _start: float = attrs.field(factory=trio.current_time, init=False)
    _open: TextIO = attrs.field(init=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        with self.file.open("w", encoding="utf-8", buffering=1) as self._open:
            yield

    @on("*")
    async def record(self, message: RawMessage) -> None:
        text = (message.payload or b"null").decode()
        for found, shown in self.replace.items():
            text = text.replace(json.dumps(found)[1:-1], json.dumps(shown)[1:-1])
        event: dict[str, Any] = {
            "type": message.kind,
            "ts": round(trio.current_time() - self._start, 3),
        }
        if message.kind != "response":
            event["protocol"] = "acp"
        event["from"] = message.source.capitalize()
        event["to"] = "Agent" if message.source == "client" else "Client"
        if message.kind != "notification":
            event["id"] = message.number
        if message.kind == "response":
            event |= {"is_error": message.is_error, "payload": json.loads(text)}
        else:
            event |= {"method": message.method, "params": json.loads(text)}
        self._open.write(json.dumps(event, ensure_ascii=False) + "\n")


@attrs.frozen
class RecordedProgram:
    """A program to be recorded, and how its model calls tools."""

    package: str
    program: str
    arguments: tuple[str, ...]
    variable: str
    tools: Mapping[str, tuple[str, Mapping[str, str]]]
    """By prompt: name and arguments of the tool. `@file@` is the path of the file."""

    def environment(self, url: str, home: Path) -> dict[str, str]:
        raise NotImplementedError


class QwenCode(RecordedProgram):
    def environment(self, url: str, home: Path) -> dict[str, str]:
        settings = home / ".qwen" / "settings.json"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(json.dumps({"security": {"auth": {"selectedType": "openai"}}}))
        model = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "OPENAI_MODEL": "test"}
        return {**model, "NO_COLOR": "1"}


class OpenCode(RecordedProgram):
    def environment(self, url: str, home: Path) -> dict[str, str]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": url, "apiKey": "none"},
            "models": {"test": {"tool_call": True}},
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "local/test",
            "small_model": "local/test",
            "permission": {"edit": "ask", "bash": "ask"},
            "provider": {"local": provider},
        }
        return {
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }


class GeminiCli(RecordedProgram):
    def environment(self, url: str, home: Path) -> dict[str, str]:
        settings = home / ".gemini" / "settings.json"
        settings.parent.mkdir(exist_ok=True)
        chosen = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        }
        settings.write_text(json.dumps(chosen))
        origin = url.removesuffix("/v1")
        names = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": origin, "NO_COLOR": "1"}
        return {**names, "GEMINI_MODEL": "gemini-2.5-pro"}


class ClaudeAgent(RecordedProgram):
    def environment(self, url: str, home: Path) -> dict[str, str]:
        return {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }


class CodexAcp(RecordedProgram):
    def environment(self, url: str, home: Path) -> dict[str, str]:
        provider = {"name": "local", "base_url": url, "wire_api": "responses"}
        settings = {
            "model": "test",
            "model_provider": "local",
            "approval_policy": "on-request",
            "approvals_reviewer": "user",
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines.append("[model_providers.local]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in provider.items()]
        (home / "config.toml").write_text("\n".join(lines))
        return {"CODEX_HOME": str(home), "INITIAL_AGENT_MODE": "read-only", "NO_BROWSER": "1"}


PROGRAMS: Mapping[str, RecordedProgram] = {
    "claude-agent-acp": ClaudeAgent(
        "@agentclientprotocol/claude-agent-acp@0.100.0",
        "claude-agent-acp",
        (),
        "ACP_TEST_CLAUDE",
        {
            "Read": ("Read", {"file_path": "@file@"}),
            "Write": ("Write", {"file_path": "@file@", "content": _NOTE * 2}),
            "Run": ("Bash", {"command": "make test", "description": "run tests"}),
        },
    ),
    "gemini-cli": GeminiCli(
        "@google/gemini-cli@0.61.0",
        "gemini",
        ("--acp",),
        "ACP_TEST_GEMINI",
        {
            "Read": ("read_file", {"file_path": "@file@"}),
            "Write": ("write_file", {"file_path": "@file@", "content": _NOTE * 2}),
            "Run": ("run_shell_command", {"command": "make test", "description": "run tests"}),
        },
    ),
    "qwen-code": QwenCode(
        "@qwen-code/qwen-code",
        "qwen",
        ("--acp",),
        "ACP_TEST_QWEN",
        {
            "Read": ("read_file", {"file_path": "@file@"}),
            "Write": ("write_file", {"file_path": "@file@", "content": _NOTE * 2}),
            "Run": (
                "run_shell_command",
                {"command": "make test", "description": "run tests", "is_background": "false"},
            ),
        },
    ),
    "opencode": OpenCode(
        "opencode-ai",
        "opencode",
        ("acp",),
        "ACP_TEST_OPENCODE",
        {
            "Read": ("read", {"filePath": "@file@"}),
            "Write": ("write", {"filePath": "@file@", "content": _NOTE * 2}),
            "Run": ("bash", {"command": "make test", "description": "run tests"}),
        },
    ),
}


CODEX: Final = "codex-acp"
ALL_PROGRAMS: Mapping[str, RecordedProgram] = {
    **PROGRAMS,
    CODEX: CodexAcp("@agentclientprotocol/codex-acp@2.6.0", CODEX, (), "ACP_TEST_CODEX", {}),
}
"""With those that are not recorded."""


@attrs.define(eq=False)
class ScriptedModel(Model):
    """Answers the last prompt of `PROMPTS` in a request: with its tool, or with text."""

    program: RecordedProgram
    file: Path
    thinking: trio.Event = attrs.field(factory=trio.Event)
    """Set when the answer to the last prompt is asked for."""

    async def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        messages = asked.get("messages", [])
        texts = [json.dumps(each) for each in messages if each["role"] == "user"]
        found = [prompt for text in texts for prompt in PROMPTS if prompt in text]
        if not found or not asked.get("tools"):
            return {"role": "assistant", "content": "Notes"}, "stop"  # a title, for example
        prompt = found[-1]
        if prompt == PROMPTS[-1]:
            self.thinking.set()
            await trio.sleep_forever()
        tool = self.program.tools.get(prompt.partition(" ")[0])
        result = f'"tool_use_id": "call-{PROMPTS.index(prompt)}"'  # of Anthropic
        if tool is None or messages[-1]["role"] == "tool" or result in json.dumps(messages):
            return {"role": "assistant", "content": "Hello." if tool is None else "Done."}, "stop"
        arguments = {name: text.replace("@file@", str(self.file)) for name, text in tool[1].items()}
        if "is_background" in arguments:
            function = json.dumps({**arguments, "is_background": False})
        else:
            function = json.dumps(arguments)
        call = {
            "index": 0,
            "id": f"call-{PROMPTS.index(prompt)}",
            "type": "function",
            "function": {"name": tool[0], "arguments": function},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


async def record(name: str, file: Path, directory: Path) -> None:
    """Record the conversation with an agent to `file`; the agent lives in an empty `directory`."""
    program = PROGRAMS[name]
    argv = (from_npm(program.package, program.program, variable=program.variable),)
    home, work = directory / "home", directory / "work"
    home.mkdir(parents=True)
    work.mkdir()
    (work / "notes.txt").write_text(_NOTE)
    model = ScriptedModel(program, work / "notes.txt")
    async with model_url(model) as url, trio.open_nursery() as nursery:
        environment = {"HOME": str(home), **program.environment(url, home)}
        agent = ComponentSpec(name=name, run=(*argv, *program.arguments), env=environment)
        replace = {
            str(work): PROJECT,
            str(work)[1:]: PROJECT[1:],  # a path relative to the root: a title of opencode
            str(home): "/home/user",
            os.getcwd(): "/home/user",
            url: "http://model",
        }
        async with open_chain(Recorder(file, replace), agent, bridged=False) as client:
            with trio.fail_after(120):
                await client.initialize()
                client.handlers |= _HANDLERS
                session = await client.new_session(str(work))
                await client.transcript.wait("session/update available_commands_update")
                for prompt in PROMPTS[:-1]:
                    await client.prompt(session, prompt)
                nursery.start_soon(_cancel_when_thinking, model, client, session)
                with suppress(RequestError):  # qwen-code answers a cancelled turn so
                    await client.prompt(session, PROMPTS[-1])
        nursery.cancel_scope.cancel()


def _read(params: Any) -> dict[str, Any]:
    return {"content": Path(params["path"]).read_text()}


def _write(params: Any) -> dict[str, Any]:
    Path(params["path"]).write_text(params["content"])
    return {}


def _permit(params: Any) -> dict[str, Any]:
    """Allow everything but commands."""
    wanted = "reject" if params["toolCall"].get("kind") == "execute" else "allow_once"
    option = next(each for each in params["options"] if each["kind"].startswith(wanted))
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


_HANDLERS = {
    "session/request_permission": _permit,
    "fs/read_text_file": _read,
    "fs/write_text_file": _write,
}


async def _cancel_when_thinking(model: ScriptedModel, client: Any, session: str) -> None:
    await model.thinking.wait()
    client.cancel(session)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    directory.mkdir(exist_ok=True)
    for name, program in PROGRAMS.items():
        if os.environ.get(program.variable):
            with tempfile.TemporaryDirectory() as place:
                trio.run(record, name, directory / f"{name}.jsonl", Path(place))


if __name__ == "__main__":
    main()
