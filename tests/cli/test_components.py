"""`acp-conductor components`, from the outside."""

from __future__ import annotations


def test_every_component_is_listed_with_its_options(run):
    result = run("components")

    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "context (proxy): Put texts, files and the output of a command before prompts." in lines
    assert "    timeout: timedelta = 3s" in lines
    assert "    hooks: list[Hook]" in lines
    assert "    tokens: Literal['turn', 'session'] = 'turn'" in lines
    assert "    Hook:" in lines
    assert any(line.startswith("        run: ") for line in lines)
    assert any(line.startswith("test-agent (agent): ") for line in lines)


def test_one_component_can_be_listed(run):
    result = run("components", "usage")

    assert result.stdout.splitlines()[0].startswith("usage (proxy): ")
    assert "redact" not in result.stdout


def test_with_a_name_each_option_is_described(run):
    lines = run("components", "permissions").stdout.splitlines()

    below = lines[lines.index("    dry_run: bool = False") + 1]
    assert below == "        forward every request, and record what the rules would have done"
    below = lines[lines.index("        path: list[str] = []") + 1]
    assert below == "            Globs, relative to the session's directory."


def test_an_unknown_name_is_a_usage_error(run):
    result = run("components", "usgae")

    assert result.returncode == 2
    assert "Did you mean 'usage'?" in result.stderr
