"""How docs/recipes.md shows that `redact` works: it does, and tells when it does not."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
RECIPE = RECIPES.partition("## Secrets in prompts are masked")[2].partition("\n## ")[0]
AGENT = "run: [claude-agent-acp]"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("is_right", [True, False])
def test_the_commands_tell_whether_the_agent_gets_the_secret(tmp_path, is_right):
    [chain] = re.findall(r"^```yaml\n(.*?)^```", RECIPE, re.DOTALL | re.MULTILINE)
    [commands] = re.findall(r"^```sh\n(.*?)^```", RECIPE, re.DOTALL | re.MULTILINE)
    [token] = re.findall(r"a false token into `notes.txt`, such as `(.*?)`", RECIPE)
    assert AGENT in chain
    chain = chain.replace(AGENT, "use: test-agent")
    if not is_right:
        start, context, redact, end = re.split(r"^(?=  - use|agent:)", chain, flags=re.MULTILINE)
        chain = start + redact + context + end
    (tmp_path / "review.yaml").write_text(chain)
    (tmp_path / "notes.txt").write_text(token)

    for command in commands.splitlines():
        words = shlex.split(command.replace("claude-agent-acp", "test-agent"))
        assert words[0] == "acp-conductor"
        result = subprocess.run(
            [sys.executable, "-m", "conductor", *words[1:]],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    [none] = re.findall(r'or says "(.*?)"', RECIPE)
    assert ("session/prompt" in result.stdout) is is_right
    assert ("[redacted:password:1]" in result.stdout) is is_right
    assert (none in result.stderr) is not is_right
