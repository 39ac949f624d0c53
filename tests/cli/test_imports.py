"""Help and version cost nothing: what takes time is imported when it is needed (CLI, issue 2)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "asyncio",
    "cattrs",
    "conductor.chain.chain",
    "conductor.schema.v1",
    "msgspec",
    "pydantic",
    "rich",
    "structlog",
    "trio",
    "yaml",
}
PROGRAM = """
import json, sys
from conductor.cli.command_group import acp_conductor
try:
    acp_conductor(sys.argv[1:], prog_name="acp-conductor")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["prompt", "--help"],
        ["run", "--help"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(arguments):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )

    assert "acp-conductor" in result.stdout
    assert HEAVY & set(json.loads(result.stderr)) == set()


def test_the_pytest_plugin_costs_nothing_in_a_run_that_does_not_use_it():
    program = (
        "import pytest, conductor.testing.plugin, json, sys; print(json.dumps([*sys.modules]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    ours = {name for name in json.loads(result.stdout) if name.startswith("conductor")}
    assert ours == {"conductor", "conductor.testing", "conductor.testing.plugin"}


def test_the_embedding_api_is_imported_when_it_is_used():
    program = (
        "import conductor, json, sys; before = [*sys.modules]; conductor.open_chain;"
        "print(json.dumps([before, [*sys.modules]]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    before, after = json.loads(result.stdout)
    assert {name for name in before if name.startswith("conductor")} == {"conductor"}
    assert "trio" not in before
    assert "conductor.client.open_chain" in after
