"""The process that imports plugins for a command."""

from __future__ import annotations

import subprocess

from conductor.cli import plugin_process as module


def test_it_ends_by_itself_when_all_questions_are_answered(monkeypatch):
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

        def wait(self, timeout=None):  # it may be slow under load
            return super().wait(30)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    process = module.PluginProcess("conductor.cli.schema")

    assert process.ask(b'"usage"\n', seconds=30).startswith(b"[{")
    process.kill()

    assert [each.returncode for each in started] == [0]
