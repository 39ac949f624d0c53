"""A trace file with `acp-conductor trace view` beside it: the option `--view`.

The page is served by a process of its own, so that it takes no time of the chain's event loop. The
process ends with this one: it is a descendant, and its stdin reaches EOF.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import attrs

from conductor.files import lock_directory
from conductor.places import VIEW_PREFIX
from conductor.tracing.trace_file import TraceFile

__all__ = ["ViewedTrace", "temporary_trace"]


def temporary_trace() -> Path:
    """A path for a trace that is only viewed, in a new directory of this user.

    This process has a lock on the directory until it ends.
    """
    directory = tempfile.mkdtemp(prefix=VIEW_PREFIX)
    lock_directory(directory)
    return Path(directory) / "trace.jsonl"


@attrs.define(eq=False, repr=False)
class ViewedTrace(TraceFile):
    """A trace file that a page shows while it is written; the page's URL goes to stderr.

    A temporary trace is removed with its directory at the end.
    """

    is_temporary: bool = False
    _viewer: subprocess.Popen[bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        TraceFile.__attrs_post_init__(self)
        command = [sys.executable, "-P", "-m", "conductor", "trace", "view", str(self.path)]
        command += ["--no-browser", "--live", *(["--remove"] if self.is_temporary else [])]
        # Its own session: Ctrl-C is for the chain.
        self._viewer = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=2, start_new_session=True
        )

    def linger(self) -> None:
        """Wait for Ctrl-C, so that the page can be read; not if stderr is not a terminal."""
        if not sys.stderr.isatty():
            return
        self.flush()
        print("acp-conductor: the view ends with Ctrl-C", file=sys.stderr, flush=True)
        with suppress(KeyboardInterrupt):
            self._viewer.wait()

    def close(self) -> None:
        TraceFile.close(self)
        self._viewer.kill()
        self._viewer.communicate()  # closes its stdin, and waits
        if self.is_temporary:
            shutil.rmtree(self.path.parent, ignore_errors=True)
