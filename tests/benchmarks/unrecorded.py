"""`acp-conductor` without the flight recorder: what recording is compared with."""

from __future__ import annotations

import sys

from conductor.cli import main
from conductor.tracing.recorder import Recorder

if __name__ == "__main__":
    Recorder.attach = lambda self, components: None  # type: ignore[method-assign]
    Recorder.trace = lambda self, port, component, side: port  # type: ignore
    Recorder.trace_notices = lambda self, client: client  # type: ignore
    sys.argv[0] = "acp-conductor"
    main()
