"""The chain file of `run`, read again while sessions run."""

from __future__ import annotations

import os
import threading

import pytest

from conductor.cli import stdio_chain
from conductor.errors import ChainFileError

CHAIN = "version: 1\nagent: {use: test-agent}\n"


def test_a_chain_file_that_becomes_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    """An agent may have replaced it; every session would wait for a writer."""
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN)
    loads = []

    def serve(chain, on_start_failure, trace, load, chooser):
        loads.append(load)
        raise SystemExit

    monkeypatch.setattr(stdio_chain, "serve_file", serve)
    with pytest.raises(SystemExit):
        stdio_chain.serve_path(str(path))
    path.unlink()
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[CHAIN], daemon=True)
    writer.start()  # so that a reading that waits ends

    with pytest.raises(ChainFileError, match="it is a named pipe"):
        loads[0]()
    with path.open() as pipe:
        assert pipe.read() == CHAIN
    writer.join()
