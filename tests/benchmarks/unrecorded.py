"""`acp-conductor` without the flight recorder: what recording is compared with."""

from __future__ import annotations

import sys

from conductor.cli import main
from conductor.tracing.recorder import TraceRecorder

if __name__ == "__main__":
    TraceRecorder.attach = lambda self, components: None  # type: ignore[method-assign]
    TraceRecorder.trace = lambda self, port, component, side: port  # type: ignore
    TraceRecorder.trace_notices = lambda self, client: client  # type: ignore
    sys.argv[0] = "acp-conductor"
    main()
