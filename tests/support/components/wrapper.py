"""Starts the command in its arguments as a child, as npx and uvx do, and waits for it.

`--new-session` takes the child out of the process group.
"""

import subprocess
import sys

command = sys.argv[1:]
flags = set()
while command[0].startswith("--"):
    flags.add(command.pop(0))
child = subprocess.Popen(command, start_new_session="--new-session" in flags)
sys.exit(child.wait())
