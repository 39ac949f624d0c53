"""`acp-conductor` that counts its calls: `counted.py FILE COMMAND…`.

SIGUSR2 begins and creates FILE; a second one ends, and writes there how often functions of each
module of the conductor were called.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import conductor
from conductor.cli import main

ROOT = str(Path(conductor.__file__).parents[1])
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("conductor", "proxies", "bridges"))

counts: Counter[str] = Counter()


def _count(frame: FrameType, event: str, _: object) -> None:
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
        counts[frame.f_code.co_filename] += 1


def _switch(number: int, frame: object) -> None:
    if sys.getprofile() is None:
        counts.clear()
        FILE.touch()
        sys.setprofile(_count)
    else:
        sys.setprofile(None)
        FILE.with_suffix(".new").write_text(json.dumps(counts))
        os.replace(FILE.with_suffix(".new"), FILE)


if __name__ == "__main__":
    FILE = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR2, _switch)
    sys.argv[0] = "acp-conductor"
    main()
