"""Limits on what a package manager writes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from conductor.registry import size_limit
from conductor.registry.size_limit import SizeWatch, limit_file_size

PATIENCE = 30


@pytest.mark.parametrize(
    ("limit", "value", "excess"),
    [("MAX_ENTRY_BYTES", 2 << 20, "2 MiB"), ("MAX_ENTRY_FILES", 2, "2 files")],
)
def test_a_directory_that_is_too_large_is_noticed_while_it_grows(
    tmp_path, monkeypatch, limit, value, excess
):
    monkeypatch.setattr(size_limit, "_INTERVAL", 0.01)
    monkeypatch.setattr(size_limit, limit, value)
    stopped = threading.Event()
    (tmp_path / "inner").mkdir()
    with SizeWatch(tmp_path, stopped.set) as watch:
        for number in range(3):
            (tmp_path / "inner" / str(number)).write_bytes(bytes(1 << 20))

        assert stopped.wait(PATIENCE)
    assert watch.excess == excess


def test_what_was_written_at_the_end_counts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(size_limit, "MAX_ENTRY_BYTES", 10)
    with SizeWatch(tmp_path, lambda: None) as watch:
        (tmp_path / "file").write_bytes(bytes(11))

    assert watch.excess is not None


def test_a_directory_within_the_limits_is_not_stopped(tmp_path):
    (tmp_path / "link").symlink_to("/dev/zero")
    with SizeWatch(tmp_path, lambda: pytest.fail("stopped")) as watch:
        (tmp_path / "file").write_bytes(bytes(10))

    assert watch.excess is None


def test_a_file_that_is_too_large_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(size_limit, "MAX_ENTRY_BYTES", 1000)
    words = ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=500", "count=3"]
    done = subprocess.run(words, preexec_fn=limit_file_size, stderr=subprocess.DEVNULL)

    assert done.returncode in (1, -signal.SIGXFSZ)
    assert os.path.getsize(tmp_path / "file") == 1000
