"""The example chains load, and their options have no mistakes. What each promises is in
`proxies/test_chains.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHAINS = sorted((Path(__file__).parent.parent / "chains").glob("*.yaml"))


def test_no_example_chain_has_a_mistake() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "conductor", "check", *map(str, CHAINS)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert len(CHAINS) > 30
