"""Commands as real processes, and an OTLP receiver."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.otlp_receiver import otlp_receiver

PATIENCE = 30  # seconds; only a hanging program takes that long


@pytest.fixture
def run(tmp_path):
    """Run `acp-conductor` in `tmp_path`; returns the result of `subprocess.run`."""

    def run(*arguments, input="", env=None):
        return subprocess.run(
            [sys.executable, "-m", "conductor", *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            timeout=PATIENCE,
        )

    return run


@pytest.fixture
def receiver():
    with otlp_receiver() as receiver:
        yield receiver
