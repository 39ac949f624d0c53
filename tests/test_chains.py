"""The example chains: each one loads, and those that need nothing from elsewhere start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conductor.chainfile import load

CHAINS = sorted((Path(__file__).parent.parent / "chains").glob("*.yaml"))


@pytest.mark.parametrize("path", CHAINS, ids=lambda path: path.stem)
def test_an_example_chain_loads(path: Path) -> None:
    chain = load(path)
    assert chain.proxies or chain.agent


def test_no_example_chain_has_a_mistake_in_its_options() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "conductor", "check", *map(str, CHAINS)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
