"""Golden files: what `install` prints and writes for each editor."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.cli.install.editors import EDITORS

GOLDEN = Path(__file__).parent / "golden"
PLACES = {
    "zed": ".config/zed/settings.json",
    "jetbrains": ".jetbrains/acp.json",
    "vscode": ".config/Code/User/settings.json",
    "acpx": ".acpx/config.json",
    "codecompanion": ".config/nvim/after/plugin/acp-conductor-codecompanion-review.lua",
    "avante": ".config/nvim/after/plugin/acp-conductor-avante-review.lua",
    "agent-shell": ".emacs.d/init.el",
}
WITH_SETTINGS = ["zed", "jetbrains", "vscode", "acpx", "agent-shell"]


def golden(editor: str, name: str) -> str:
    return (GOLDEN / editor / name).read_text()


def settings(home: Path, editor: str) -> Path:
    """The file of an editor with the settings of a person."""
    path = home / PLACES[editor]
    path.parent.mkdir(parents=True)
    path.write_text(golden(editor, "before"))
    return path


def test_every_editor_has_golden_files():
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(EDITORS)


@pytest.mark.parametrize("editor", EDITORS)
def test_what_is_printed(call, portable, editor):
    result = call("install", editor, "--chain", "review.yaml")

    assert portable(result.stdout) == golden(editor, "printed")


@pytest.mark.parametrize("editor", PLACES)
def test_what_is_written_to_a_new_file(home, call, portable, editor):
    call("install", editor, "--chain", "review.yaml", "--write")

    assert portable((home / PLACES[editor]).read_text()) == golden(editor, "printed")

    call("uninstall", editor)
    assert not (home / PLACES[editor]).exists()


@pytest.mark.parametrize("editor", WITH_SETTINGS)
def test_what_is_added_to_the_settings_of_a_person(home, call, portable, editor):
    path = settings(home, editor)

    call("install", editor, "--chain", "review.yaml", "--write")

    assert portable(path.read_text()) == golden(editor, "installed")


@pytest.mark.parametrize("editor", PLACES)
def test_what_is_wrapped(home, call, portable, editor):
    path = home / PLACES[editor].replace("review", "gemini")
    if editor in WITH_SETTINGS:
        path = settings(home, editor)

    call("install", editor, "--use", "usage", "--wrap", "gemini", "--write")

    assert portable(path.read_text()) == golden(editor, "wrapped")


def test_an_agent_by_its_command_with_proxies_or_a_chain(call, home, portable):
    (home / "approve.py").write_text("")
    words = ["--use", "context:{files: [AGENTS.md]}", "--use", "./approve.py:Approve"]
    by_use = call("install", "acpx", *words, "--", "gemini", "--acp")
    by_chain = call("install", "acpx", "--chain", "review.yaml", "--name", "g", "--", "gemini")

    assert portable(by_use.stdout).splitlines()[2:4] == [
        '    "gemini": {',
        '      "command": "/path/to/acp-conductor wrap --use \'context:{files: [AGENTS.md]}\' '
        '--use /home/me/approve.py:Approve -- gemini --acp"',
    ]
    assert portable(by_chain.stdout).splitlines()[2:4] == [
        '    "g": {',
        '      "command": "/path/to/acp-conductor wrap --chain /home/me/review.yaml -- gemini"',
    ]
    assert "note: gemini is not in PATH" in by_use.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "message"),
    [("nope", "no installed package has"), ("context:{fles: [a]}", "unknown option `fles`")],
)
def test_a_proxy_that_would_not_start_is_not_installed(run, home, use, message):
    done = run("install", "zed", "--use", use, "--write", "--", "gemini")

    assert done.returncode == 2
    assert message in done.stderr
    assert not (home / PLACES["zed"]).exists()


def test_path_is_captured_or_not_as_asked(call):
    assert '"PATH": "/usr/bin:/bin"' in call("install", "zed", "--chain", "review.yaml").stdout
    assert "PATH" not in call("install", "zed", "--chain", "review.yaml", "--no-path").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zed", "--chain", "tools.yaml"], "there is no agent: give a --chain with an `agent:`"),
        (["zed", "--use", "usage", "--chain", "review.yaml"], "exclude each other"),
        (["zed", "--wrap", "g", "--", "gemini"], "name only one"),
        (["zed", "--use", "context:{a", "--", "gemini"], "--use context:1:"),
        (["agent-shell", "--use", "usage", "--", "gemini"], "selects the agent itself"),
        (["toad", "--wrap", "g"], "Toad has no file with agents"),
        (["marimo", "--use", "usage", "--", "gemini"], "marimo needs a --chain with an `agent:`"),
        (["emacs"], "'emacs' is not one of"),
    ],
)
def test_usage_errors(home, call, words, message):
    (home / "tools.yaml").write_text("version: 1\nproxies: [{use: usage}]\n")

    assert message in call("install", *words, code=2).stderr


def test_a_chain_file_with_mistakes_is_not_installed(home, call, capsys):
    (home / "review.yaml").write_text("version: 1\nagnet: {}\n")

    call("install", "zed", "--chain", "review.yaml", "--write", code=2)

    assert not (home / PLACES["zed"]).exists()


def test_mistakes_of_the_settings_are_named_with_their_line(home, call):
    path = settings(home, "zed")
    path.write_text('{\n  "theme": "One"\n  "vim_mode": true\n}\n')

    result = call("install", "zed", "--chain", "review.yaml", "--write", code=1)

    assert f"{path}:3:3: error: not valid JSON: expected `,` or `}}`" in result.stderr
    assert "help: correct the file first" in result.stderr


def test_an_entry_of_a_person_is_not_replaced(home, call):
    before = settings(home, "zed").read_text()

    result = call(
        *("install", "zed", "--chain", "review.yaml", "--name", "gemini", "--write"), code=1
    )

    assert "there is an entry 'gemini' already" in result.stderr
    assert "--wrap gemini puts the chain before it" in result.stderr
    assert (home / PLACES["zed"]).read_text() == before


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("claude", "`agent_servers` has no entry 'claude'\n   |"),
        ("registered", "the entry 'registered' has no `command` with `args` to wrap"),
        ("conducted", "the entry 'conducted' already runs acp-conductor"),
    ],
)
def test_what_cannot_be_wrapped(home, call, entry, message):
    settings(home, "zed").write_text(
        '{"agent_servers": {"registered": {"type": "registry"},'
        ' "conducted": {"command": "/opt/bin/acp-conductor", "args": ["run", "a.yaml"]}}}'
    )

    result = call("install", "zed", "--use", "usage", "--wrap", entry, "--write", code=1)

    assert message in result.stderr
