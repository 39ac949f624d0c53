"""Which arguments of `acp-conductor proxy` are chain files."""

from __future__ import annotations

import pytest

from conductor.cli.run import _is_chain_file


@pytest.mark.parametrize(
    ("word", "is_file"),
    [
        ("tools.yaml", True),
        ("dir/absent.yml", True),
        ("my chains/tools.yaml", True),
        ("p --config x.yaml", False),
        ("p --config 'my chains/tools.yaml'", False),
        ("notes-proxy", False),
    ],
)
def test_a_command_that_ends_with_a_chain_files_name_is_a_command(
    tmp_path, monkeypatch, word, is_file
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my chains").mkdir()
    (tmp_path / "my chains" / "tools.yaml").touch()

    assert _is_chain_file(word) is is_file


def test_the_command_is_started(run):
    initialize = '{"jsonrpc":"2.0","id":1,"method":"proxy/initialize","params":{}}\n'

    result = run("proxy", "no-such-proxy --config x.yaml", input=initialize)

    assert result.returncode == 3
    assert "command not found: no-such-proxy" in result.stdout
