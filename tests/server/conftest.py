"""A Redis for the tests that need one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.external_programs import Program, redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Program]:
    server = redis_server(tmp_path)
    server.start()
    yield server
    server.end()
    gc.collect()  # what coredis forgot is told of here, where it is known
