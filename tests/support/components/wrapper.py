"""Starts the command in its arguments as a child, as npx and uvx do, and waits for it.

`--new-session` takes the child out of the process group; `--leave` ends at once and lets it run.
"""

import subprocess
import sys

command = sys.argv[1:]
flags = set()
while command[0].startswith("--"):
    flags.add(command.pop(0))
child = subprocess.Popen(command, start_new_session="--new-session" in flags)
if "--leave" not in flags:
    sys.exit(child.wait())
