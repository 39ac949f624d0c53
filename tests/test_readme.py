"""The README's two commands and its table of commands; its code blocks are in docs/."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.forked_command import CommandServer

from conductor.cli.command_group import acp_conductor

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def command(name: str) -> str:
    """The command between the markers `<!-- name -->` and `<!-- end -->`."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)\n```\n<!-- end -->", README, re.DOTALL)
    assert found, f"the README has no command marked {name}"
    return found[1]


def test_the_prompt_of_the_first_command_is_answered() -> None:
    shown = command("try").rpartition("acp-conductor ")[2]
    run = subprocess.run(
        f"{sys.executable} -m conductor {shown}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    first, second = (block["text"] for block in json.loads(run.stdout))
    assert "Answer in one sentence." in first
    assert second == "echo hello"


@pytest.mark.slow
def test_its_files_and_commands_work_in_an_empty_directory(
    tmp_path: Path, command_server: CommandServer
) -> None:
    """In the order of the page, but for the file that it refers to before it shows it."""
    for name, text in re.findall(
        r"```(?:yaml|python)\n# (\S+\.(?:yaml|py)).*?\n(.*?)```", README, re.S
    ):
        (tmp_path / name.rstrip(",")).write_text(text)

    def run(line: str) -> str:
        assert f"`acp-conductor {line}`" in README.replace("\n", " "), line
        environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        done = command_server.run(
            shlex.split(line), input="", cwd=tmp_path, env={**os.environ, **environ}, timeout=60
        )
        assert done.returncode == 0, (line, done.stderr)
        assert "warning" not in done.stderr
        return done.stdout

    assert run("check review.yaml") == "review.yaml: ok: 2 proxies, agent test-agent\n"
    assert "Be kind." in run('prompt review.yaml "echo hello"')
    assert json.loads(run("schema"))["$schema"]
    run("install zed --chain review.yaml --write")
    assert "review.yaml" in (tmp_path / "config/zed/settings.json").read_text()
    run("new proxy notes")
    assert "Be kind." in run('try context.py --with context="Be kind."')


def test_ci_runs_the_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "<!-- tests -->" in script
    assert "pytest" in command("tests")


def test_the_rows_of_the_table_are_the_sections_of_the_help() -> None:
    table = README.partition("## Commands")[2]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    context = click.Context(acp_conductor, info_name="acp-conductor")
    listed = acp_conductor.get_help(context).partition("Serve a chain:")[2]
    sections = [re.findall(r"^  ([a-z]+) ", each, re.MULTILINE) for each in listed.split("\n\n")]
    assert [re.findall(r"`([a-z-]+)`", row) for row in rows] == sections
