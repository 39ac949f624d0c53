"""Lines of the log."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from conductor import log
log.configure("info", as_json={as_json})
logger = log.get_logger(component="\\x1bc")
logger.warning("unknown method", method="\\x1b]52;c;ZXZpbA==\\x07", title="\\u202e\\x9b31m")
try:
    raise ValueError("\\x1b[2J")
except ValueError:
    logger.error("failed", exc_info=True)
"""


def test_texts_of_peers_do_not_control_a_terminal():
    """Texts without a space are written as they are, by the renderer for people."""
    for as_json in (False, True):
        program = PROGRAM.format(as_json=as_json)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

        assert "]52;c;ZXZpbA==" in done.stderr
        assert not set("\x1b\x07\x9b\u202e") & set(done.stderr)
