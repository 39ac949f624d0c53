"""`acp-conductor proxy`: a command that ends with the name of a chain file is a command."""

from __future__ import annotations


def test_the_command_is_started(run):
    initialize = '{"jsonrpc":"2.0","id":1,"method":"proxy/initialize","params":{}}\n'

    result = run("proxy", "no-such-proxy --config x.yaml", input=initialize)

    assert result.returncode == 3
    assert "command not found: no-such-proxy" in result.stdout


def test_a_path_with_a_space_is_a_chain_file_if_it_exists(run, tmp_path):
    (tmp_path / "my chains").mkdir()
    (tmp_path / "my chains" / "tools.yaml").write_text("version: 1\nnope: x\n")

    done = run("proxy", "my chains/tools.yaml")

    assert (done.returncode, "unknown key `nope`" in done.stderr) == (2, True)
