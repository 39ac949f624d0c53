"""How an editor starts `acp-conductor`: absolute, and with the PATH of this shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from conductor.cli.install.formats import captured_path, is_temporary, own_program, wrap_words


def test_the_program_is_absolute_and_starts():
    program = own_program()

    assert Path(program[0]).is_absolute()
    assert os.access(program[0], os.X_OK)


def test_without_a_script_the_interpreter_runs_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert own_program() == (str(tmp_path / "python"), "-P", "-m", "conductor")


def test_paths_in_the_words_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert wrap_words("a.yaml", []) == ["wrap", "--chain", f"{tmp_path}/a.yaml", "--"]
    assert wrap_words(None, ["usage", "b.py:C:{x: d.py:E}", "context:{files: [x.py:]}"]) == [
        *("wrap", "--use", "usage", "--use", f"{tmp_path}/b.py:C:{{x: d.py:E}}"),
        *("--use", "context:{files: [x.py:]}", "--"),
    ]


def test_of_path_what_exists_is_kept_once(tmp_path):
    path = os.pathsep.join(["", ".", str(tmp_path), "/no/such", "/", str(tmp_path)])

    assert captured_path({"PATH": path}) == f"{tmp_path}{os.pathsep}/"
    assert captured_path({}) == ""


def test_an_installation_of_uvx_is_temporary():
    assert is_temporary(["/home/me/.cache/uv/archive-v0/x1/bin/acp-conductor"])
    assert not is_temporary(["/home/me/.local/share/uv/tools/acp-conductor/bin/acp-conductor"])
