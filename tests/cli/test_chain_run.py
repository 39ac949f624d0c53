"""The chain file of `run`, read again while sessions run."""

from __future__ import annotations

import os
import threading

import pytest

from conductor.cli.chain_run import ChainRun
from conductor.errors import ChainFileError

CHAIN = "version: 1\nagent: {use: test-agent}\n"


def test_a_chain_file_that_becomes_a_pipe_is_not_waited_for(tmp_path):
    """An agent may have replaced it; every session would wait for a writer."""
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN)
    run = ChainRun.of_file(str(path))
    path.unlink()
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[CHAIN], daemon=True)
    writer.start()  # so that a reading that waits ends

    with pytest.raises(ChainFileError, match="it is a named pipe"):
        run.load()
    with path.open() as pipe:
        assert pipe.read() == CHAIN
    writer.join()
