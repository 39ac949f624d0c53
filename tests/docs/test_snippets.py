"""Every code block of README and docs works as it stands there.

Each page gets an empty directory, in which its blocks are saved and run from top to bottom.
Commands that need other machines, install packages or run for minutes are only parsed, by the same
parser that would run them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import lupa
import pytest
from support.doc_snippets import PAGES, ROOT, Snippet, snippets
from support.forked_command import CommandServer

from conductor.cli.command_group import acp_conductor
from conductor.plugins.loading import ENTRY_POINT_GROUP

SNIPPETS = {str(page.relative_to(ROOT)): snippets(page) for page in PAGES}
FOREIGN = ("claude-agent-acp", "uvx", "ssh", "notify-send", "node")
"""Programs that chain files of the docs name; `check` looks for them on PATH."""
STARTS = re.compile(r"^(python -m pytest|acp-conductor serve review.yaml$)", re.MULTILINE).search
"""Commands that are run; others are only parsed."""
HELLO = "version: 1\nagent:\n  use: test-agent\n"


def of_language(*languages: str) -> list[object]:
    every = [snippet for page in SNIPPETS.values() for snippet in page]
    return [
        pytest.param(each, id=str(each), marks=pytest.mark.slow if STARTS(each.text) else ())
        for each in every
        if each.language in languages
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the reader works: what the pages take for granted is there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in FOREIGN:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    work = tmp_path / "work"
    (work / "docs" / "rules").mkdir(parents=True)
    (work / "tools.yaml").write_text("version: 1\nproxies:\n  - use: usage\n")
    for name in ("AGENTS.md", "instructions.md", "docs/rules/one.md", "notes.txt"):
        (work / name).write_text("Be kind.\n")
    return work


@pytest.fixture
def run(
    directory: Path, command_server: CommandServer
) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        path = [str(directory.parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        tokens = {"PROXY_TOKEN": "x", "DOCS_TOKEN": "x"}
        environ = {**os.environ, **tokens, "PATH": os.pathsep.join(path)}
        if command[0] == "acp-conductor":
            return command_server.run(
                command[1:], input="", cwd=directory, env=environ, timeout=120
            )
        return subprocess.run(
            command,
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def save_files(page: str, directory: Path) -> list[str]:
    """Save the blocks of a page that name their file."""
    for each in SNIPPETS[page]:
        if is_registry(each):
            (directory / "agents.json").write_text(each.text)
    named = [each for each in SNIPPETS[page] if each.file_name is not None]
    for each in named:
        assert each.file_name is not None
        (directory / each.file_name).write_text(each.text)
    return [each.file_name for each in named if each.file_name is not None]


def is_tested_by_its_page(page: str, name: str) -> bool:
    """Whether a command of the page, which `test_commands` runs, runs this test."""
    commands = [each for snippet in SNIPPETS[page] for each in snippet.commands]
    return any(each.startswith("python -m pytest") and name in each.split() for each in commands)


@pytest.mark.slow
@pytest.mark.parametrize("snippet", of_language("python"))
def test_python(snippet: Snippet, directory: Path, run) -> None:
    save_files(snippet.page, directory)
    name = snippet.file_name
    assert name is not None, f"{snippet}: say under which name to save it: `# name.py`"
    if is_tested_by_its_page(snippet.page, name):
        return
    if name.startswith("test_"):
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "trio_mode=true", name]
    else:
        command = ["-W", "error", name]

    result = run([sys.executable, *command])

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("snippet", of_language("yaml"))
def test_chain_file(snippet: Snippet, directory: Path, run) -> None:
    save_files(snippet.page, directory)
    text = snippet.text
    if not text.startswith(("version:", "# ")):  # an entry of `proxies:`
        entries = "".join(f"  {line}\n" for line in text.splitlines())
        text = f"version: 1\nproxies:\n{entries}agent:\n  use: test-agent\n"
    for certificate in re.findall(r"[\w-]+\.(?:pem|key)", text):
        (directory / certificate).write_text("")
    (directory / "chain.yaml").write_text(text)

    result = run(["acp-conductor", "check", "chain.yaml"])

    assert result.returncode == 0, result.stdout + result.stderr


def is_registry(snippet: Snippet) -> bool:
    """Whether a block has a list of `agents`; acpx has an object."""
    return snippet.language == "json" and isinstance(json.loads(snippet.text).get("agents"), list)


@pytest.mark.parametrize("snippet", of_language("json", "lua"))
def test_editor_setting_or_registry(snippet: Snippet, directory: Path, run) -> None:
    if is_registry(snippet):
        save_files(snippet.page, directory)
        result = run(["acp-conductor", "registry", "list", "--registry", "agents.json"])
        registry = json.loads(snippet.text)
        count = len(registry["agents"]) + len(registry["proxies"])
        assert f"{count} entries" in result.stdout, result.stderr
        return
    find_command = json_command if snippet.language == "json" else lua_command
    (directory / "review.yaml").write_text(HELLO)
    places = {"/path/to/acp-conductor": "acp-conductor", "/path/to/review.yaml": "review.yaml"}
    command = [places.get(word, word) for word in find_command(snippet.text)]

    if tuple(command) not in ANSWERED:
        result = run([sys.executable, "-c", INITIALIZE, *command])
        assert result.returncode == 0, result.stderr
        ANSWERED.add(tuple(command))


ANSWERED: set[tuple[str, ...]] = set()
"""Commands that an editor has started: most pages name the same one."""

INITIALIZE = """
import json, subprocess, sys
params = {"protocolVersion": 1, "clientCapabilities": {}}
request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
line = json.dumps(request) + "\\n"
result = subprocess.run(sys.argv[1:], input=line, stdout=subprocess.PIPE, text=True)
assert json.loads(result.stdout.splitlines()[0])["result"]["protocolVersion"] == 1
"""
"""A client that initializes the agent named by its arguments and leaves."""


def json_command(text: str) -> list[str]:
    (servers,) = json.loads(text).values()
    (server,) = servers.values()
    return [*shlex.split(server["command"]), *server.get("args", [])]


def lua_command(text: str) -> list[str]:
    """The command that CodeCompanion or avante would run, found by running the setting."""
    lua = lupa.LuaRuntime()
    found = lua.execute(
        """
        local found
        local modules = {
          codecompanion = { setup = function(options)
            for _, adapter in pairs(options.adapters.acp) do adapter() end end },
          ["codecompanion.adapters"] = { extend = function(_, with)
            found = with.commands.default end },
          avante = { setup = function(options)
            local agent = options.acp_providers[options.provider]
            found = { agent.command, (unpack or table.unpack)(agent.args) } end },
        }
        require = function(name) return modules[name] end
        """
        + text
        + "return found"
    )
    return list(found.values())


@pytest.mark.parametrize("snippet", of_language("toml"))
def test_entry_points(snippet: Snippet, directory: Path) -> None:
    save_files(snippet.page, directory)
    for value in tomllib.loads(snippet.text)["project"]["entry-points"][ENTRY_POINT_GROUP].values():
        module, _, name = value.partition(":")
        assert f"class {name}(Proxy):" in (directory / f"{module}.py").read_text()


@pytest.mark.parametrize("snippet", of_language("sh"))
def test_commands(snippet: Snippet, directory: Path, run, monkeypatch) -> None:
    monkeypatch.chdir(directory)
    save_files(snippet.page, directory)
    monkeypatch.setenv("HOME", str(directory))
    (directory / ".config").mkdir()
    for name in ("tokens", "node.pem", "node.key", ".config/acp-token"):
        (directory / name).write_text("")
    (directory / "review.yaml").write_text(HELLO)
    for command in snippet.commands:
        words = [os.path.expanduser(word) for word in shlex.split(command)]
        while words and re.fullmatch(r"(export|[A-Z_]+=\S*)", words[0]):
            del words[0]
        match words:
            case []:
                pass
            case ["acp-conductor", "serve", "review.yaml"]:
                serve(words, directory)
            case ["acp-conductor", *arguments]:
                parse(arguments)
            case ["acpx", *_]:
                pass  # run by tests/interop/test_acpx.py
            case ["podman", "build", *_, "-f", file, "."]:
                assert (ROOT / file).exists()
            case ["podman", "run", *_]:
                options = words[words.index("acp-conductor") + 1 :]
                parse(served_by(ROOT / "docs/container/Containerfile") + options)
            case ["toad", "acp", "--title", _, line, "."]:
                parse(shlex.split(line)[1:])
            case ["pip", "install", *packages]:
                developers = (ROOT / "pyproject.toml").read_text()
                assert all(f'"{package}>=' in developers for package in packages)
            case ["python", "-m", "pytest", *_]:
                result = run([sys.executable, *words[1:]])
                assert result.returncode == 0, result.stdout + result.stderr
            case ["python" | ".venv/bin/python", "-m", "pytest", *arguments]:
                collect(arguments)
            case ["python" | ".venv/bin/python", "-m", module, *_]:
                path = ROOT / module.replace(".", "/")
                assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
            case ["python" | ".venv/bin/python", script, *_]:
                assert (ROOT / script).exists()
            case ["python3", "-m", "venv", ".venv", "&&", *rest]:
                setup(rest)
            case [tool, *_] if tool.startswith(".venv/bin/"):
                assert all(part.strip() in CI for part in command.split("&&") if "mypy" in part)
            case _:
                pytest.fail(f"{snippet}: the test does not know `{command}`")


def served_by(containerfile: Path) -> list[str]:
    """The arguments of acp-conductor in an image, its files in the working directory."""
    text = containerfile.read_text().replace("\\\n", "")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    program, *words = json.loads(entry)
    assert program == "acp-conductor"
    for word in words:
        if word.startswith(("/etc/", "/run/")):
            Path(Path(word).name).write_text("")
    return [Path(word).name if word.startswith("/") else word for word in words]


CI = (ROOT / ".ci" / "run").read_text()


def serve(words: list[str], directory: Path) -> None:
    """Run a server until it listens, then stop it as a service manager does."""
    program = str(Path(sys.executable).parent / words[0])
    with subprocess.Popen(
        [program, *words[1:]], cwd=directory, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        said = ""
        while "listening on" not in said and (line := server.stderr.readline()):
            said += line
        server.terminate()
    assert "listening on http://127.0.0.1:8765/acp" in said, said


def parse(arguments: list[str]) -> None:
    """Parse with the real command line, without running the command."""
    context = click.Context(acp_conductor, info_name="acp-conductor")
    name, command, rest = acp_conductor.resolve_command(context, arguments)
    assert command is not None
    command.make_context(name, rest, parent=context)


def collect(arguments: list[str]) -> None:
    paths = [each for each in arguments if each.startswith("tests")]
    assert all((ROOT / each).exists() for each in paths), paths
    options = {each for each in arguments if each.startswith("--")}
    assert options <= {"--long", "--dist"}, options


def setup(words: list[str]) -> None:
    """Installing and what follows it; run for real by `test_readme` and by CI."""
    assert words[:2] == [".venv/bin/pip", "install"], words


@pytest.mark.parametrize("page", SNIPPETS)
def test_every_language_is_run_or_a_picture(page: str) -> None:
    languages = {each.language for each in SNIPPETS[page]}

    assert languages <= {"", "python", "yaml", "json", "lua", "sh", "toml"}
